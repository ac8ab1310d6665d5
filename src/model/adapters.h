// LoRA adapters in a model's Program, as ops beside the products whose matrices they have.
#pragma once

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Puts an Adapt op behind each product of an inference Program whose matrix has adapters in
// `source` (model_files/lora/adapted_source.h). Where this rank has rows of the matrix, so has it
// of B, and A is whole; where it has columns, so has it of A, B is whole, and what the op adds is
// summed over ranks with the product itself. Products that read one value in a row keep together.
// Errors: kUnsupported: a matrix that no plain product reads, naming it.
Status AddAdapters(program::Program& program, const model_files::ModelSource& source);

}  // namespace weft::model
