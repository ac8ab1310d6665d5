// Rows of a matrix that are one part of it, such as the queries of a fused matrix.
#pragma once

#include <cstdint>

namespace weft::model_files::hf {

// The first `count` of every `stride` rows, from row `first` on; stride == 0: all rows. turn > 0:
// after `turn` rows, the part goes on with the next `count` of every `stride` rows.
struct RowRuns {
    int64_t first = 0, count = 0, stride = 0;
    int64_t turn = 0;
    int64_t all = 0;  // rows of the whole matrix; 0: those of the runs' strides

    // The whole matrix's row of row `row` of the part.
    int64_t Of(int64_t row) const {
        if (stride == 0) return row;
        const int64_t turns = turn > 0 ? row / turn : 0, at = row - turns * turn;
        return at / count * stride + first + turns * count + at % count;
    }
    // Rows of the whole matrix, for a part of `rows` rows.
    int64_t All(int64_t rows) const {
        if (all > 0) return all;
        return stride == 0 ? rows : rows / count * stride;
    }
};

}  // namespace weft::model_files::hf
