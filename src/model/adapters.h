// LoRA adapters in a model's Program, as ops next to the matrix products they adapt.
#pragma once

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Adds an Adapt op after each product of an inference Program whose matrix has an adapter (matrices
// A and B) in `source` (model_files/lora/adapted_source.h). If this rank holds rows of the matrix,
// it holds the same rows of B and all of A. If it holds columns, it holds the same columns of A and
// all of B, and the op's result is summed over ranks together with the product. Products that read
// the same value stay adjacent.
// Errors: kUnsupported, naming the matrix, if no plain product reads it.
Status AddAdapters(program::Program& program, const model_files::ModelSource& source);

}  // namespace weft::model
