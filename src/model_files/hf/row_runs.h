// Rows of a matrix that are one part of it, such as the queries of a fused matrix.
#pragma once

#include <cstdint>

namespace weft::model_files::hf {

// The first `count` of every `stride` rows, from row `first` on; stride == 0: all rows.
struct RowRuns {
    int64_t first = 0, count = 0, stride = 0;

    // The whole matrix's row of row `row` of the part.
    int64_t Of(int64_t row) const {
        return stride == 0 ? row : row / count * stride + first + row % count;
    }
    // Rows of the whole matrix, for a part of `rows` rows.
    int64_t All(int64_t rows) const { return stride == 0 ? rows : rows / count * stride; }
};

}  // namespace weft::model_files::hf
