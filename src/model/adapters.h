// Adapters in a model's Program: ops next to the ops that the adapters change.
#pragma once

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Adds to an inference Program the ops of the adapters in `source`
// (model_files/lora/adapted_source.h): Adapt after products, biases and norms, AdaptExperts and
// AdaptExpertSum after products of experts, and for an adapter with an own embedding another
// Embedding, whose tokens have other ids (FirstTokenOf). If this rank holds some rows of a matrix,
// it holds the same rows of B and all of A. If it holds some columns, it holds the same columns of
// A and all of B, and the op's result is summed over ranks together with the product. Products that
// read the same value stay adjacent.
// Errors: kUnsupported if a tensor that an adapter changes is read by another op; the message names
// the tensor.
Status AddAdapters(program::Program& program, const model_files::ModelSource& source);

}  // namespace weft::model
