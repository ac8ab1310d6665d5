// Reads what a weight of a Program holds from the model's file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Rows [row, row + count) of `weight` in its dtype, one after another into `out`: a
// backend::RowSource. A vector's rows are its elements; a stack's rows are counted through, and
// `count` stays within one of its matrices. bytes_read (may be null) grows by what was read.
// Errors: those of ReadRows. That the tensor is there, and large enough, is the builder's promise.
Status ReadWeight(const model_files::ModelSource& source, const program::Value& weight, int64_t row,
                  int64_t count, std::span<std::byte> out, uint64_t* bytes_read);

}  // namespace weft::model
