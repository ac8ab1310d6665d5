// The op that compresses keys by windows (DeepSeek-V4, "compressed sparse attention" and "heavily
// compressed attention"). Like every op it is a struct whose kRow describes its operands (ops.h).
#pragma once

#include <cstdint>

#include "program/op_row.h"

namespace weft::program {

// A window is w positions of a sequence; windows begin at position 0. In the row that ends a
// window, each column of y has the mean of `values` over the rows of the window, weighted by the
// softmax of gates + bias[position in the window]. All other rows of y are zeros.
// overlaps: values, gates and bias have twice the columns of y. The mean covers two windows: the
// second half of the columns in this window's rows, and the first half in the rows of the previous
// window, if any.
// The state holds the unfinished means. Rows 0 to 2 of the state hold, for each column, the highest
// gate, the sum of weights relative to that gate, and the weighted sum. With `overlaps`, rows 3 to
// 5 hold the same for the next window.
struct PoolWindows {
    static constexpr OpRow kRow{"pool_windows",
                                "values[T,m] gates[T,m] positions[T]:i32 bias[w,1,m]"
                                " state[r,n]:slots -> y[T,n]",
                                Pass::kInference, Trait::kSeesEarlier};
    bool overlaps = false;
    void Show(auto& show) const { show.Flag("overlaps", overlaps); }
};

}  // namespace weft::program
