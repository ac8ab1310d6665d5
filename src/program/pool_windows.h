// The compression of keys by windows (DeepSeek-V4, "compressed sparse attention" and "heavily
// compressed attention"), by row and struct as ops.h has them.
#pragma once

#include <cstdint>

#include "program/op_row.h"

namespace weft::program {

// A window is w positions of a sequence, from position 0 on. The row that ends a window has in each
// column the mean of `values` over the rows of the window, weighted by the softmax of
// gates + bias[position in the window]. All other rows of y are zeros.
// overlaps: values, gates and bias have twice the columns of y. The mean goes over two windows:
// over the second half of the columns of this window's rows, and over the first half of those of
// the window before (where there is one).
// The state holds means that rows still go into: of each column the highest gate, the sum of
// weights relative to it, and the weighted sum. Rows 3 to 5 (with overlaps) are those of the next
// window.
struct PoolWindows {
    static constexpr OpRow kRow{"pool_windows",
                                "values[T,m] gates[T,m] positions[T]:i32 bias[w,1,m]"
                                " state[r,n]:slots -> y[T,n]",
                                Pass::kInference, Trait::kSeesEarlier};
    bool overlaps = false;
    void Show(auto& show) const { show.Flag("overlaps", overlaps); }
};

}  // namespace weft::program
