// Reads the contents of a Program's weights from the model's file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Reads rows [row, row + count) of `weight` into `out`, one after another, in the weight's dtype,
// as a backend::RowSource does. The rows of a vector are its elements. In a stack of matrices, rows
// are numbered through all matrices, and the range must be within one matrix. If bytes_read is not
// null, adds the number of bytes read from the file to it.
// Errors: those of ReadRows. The builder has checked that the tensor exists and is large enough.
Status ReadWeight(const model_files::ModelSource& source, const program::Value& weight, int64_t row,
                  int64_t count, std::span<std::byte> out, uint64_t* bytes_read);

}  // namespace weft::model
