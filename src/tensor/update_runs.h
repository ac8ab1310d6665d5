// Ranges of elements for the optimizer update ops (program/update.h, kernels/dense/update.h).
#pragma once

#include <cstdint>

namespace weft {

// The half-open range [begin, end) of elements.
struct ElementRange {
    int64_t begin = 0, end = 0;
};

// Elements [begin, begin + count) of a rank's own shard of a flat bucket (program/zero.h). `kept`
// is the index at which the optimizer state has the entry of element `begin`.
struct UpdateRun {
    int64_t begin = 0, kept = 0, count = 0;
    bool decays = false;  // the elements belong to a matrix, so weight decay applies to them
};

// A whole matrix of a rank's own shard, row by row from element `begin` on. `kept`: as UpdateRun.
struct UpdateMatrix {
    int64_t begin = 0, kept = 0, rows = 0, cols = 0;
};

// A tensor under Adafactor (Shazeer and Stern 2018), which keeps one second moment per row and one
// per column of each matrix. The moments of all tensors of the model are in one vector, which is
// identical on all ranks.
struct FactoredTensor {
    int64_t rows = 0, cols = 0;  // rows: number of rows of all matrices together, 0 for a vector;
                                 // cols: number of columns of one matrix
    int64_t matrices = 1;
    int64_t rows_at = 0, cols_at = 0;  // index of the first row moment and the first column moment
    int64_t number = 0;                // index among all tensors

    int64_t rows_of_one() const { return rows > matrices ? rows / matrices : 1; }
    // Index of the column moments of the matrix that holds `row`.
    int64_t ColsOf(int64_t row) const {
        return cols_at + (rows == 0 ? 0 : row / rows_of_one() * cols);
    }
    double elements() const { return static_cast<double>((rows > 1 ? rows : 1) * cols); }
};

// Elements [range.begin, range.end) of a block of a tensor, counted row by row within the block.
// The first of them is element `own` of the rank's own shard.
struct FactoredRun {
    FactoredTensor tensor;
    int64_t row_begin = 0, col_begin = 0, col_count = 0;  // position and width of the block in the
                                                          // tensor
    ElementRange range;
    int64_t own = 0;
    bool decays = false;
};

}  // namespace weft
