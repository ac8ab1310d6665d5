// Reads the contents of a Program's weights from the model's file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model_files/model_file.h"
#include "program/program.h"

namespace weft::model {

// Reads rows [row, row + count) of `weight`, contiguous and in its dtype, into `out`: a
// backend::RowSource. The rows of a vector are its elements; the rows of a stack are numbered
// consecutively over all matrices, and the range must stay within one matrix. Adds the bytes read
// from the file to *bytes_read, if it is not null.
// Errors: those of ReadRows. The builder has checked that the tensor exists and is large enough.
Status ReadWeight(const model_files::ModelSource& source, const program::Value& weight, int64_t row,
                  int64_t count, std::span<std::byte> out, uint64_t* bytes_read);

}  // namespace weft::model
