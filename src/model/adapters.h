// LoRA adapters in a model's Program: ops next to the matrix products that the adapters change.
#pragma once

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Adds an Adapt op after each product of an inference Program whose matrix has an adapter (matrices
// A and B) in `source` (model_files/lora/adapted_source.h). If this rank holds some rows of the
// matrix, it holds the same rows of B and all of A. If it holds some columns of the matrix, it
// holds the same columns of A and all of B, and the op's result is summed over ranks together with
// the product. Products that read the same value stay adjacent.
// Errors: kUnsupported if a matrix with an adapter is not read by a plain product; the message
// names the matrix.
Status AddAdapters(program::Program& program, const model_files::ModelSource& source);

}  // namespace weft::model
