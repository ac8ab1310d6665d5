// Hyper-connections, as structs with rows (ops.h): a residual stream of several parallel copies,
// the streams (Zhu et al. 2024; constrained to a manifold: Xie et al. 2026; DeepSeek-V4).
//
// A row of the residual stream holds all streams one after another. A layer reads a weighted sum of
// them. Its result is added to each stream with a weight, and a matrix whose rows and columns add
// up to 1 mixes the streams. The weights are computed from the row itself.
#pragma once

#include <cstdint>

#include "program/op_row.h"

namespace weft::program {

// Maximum number of streams that devices support.
inline constexpr int64_t kMostStreams = 8;

// The weights of a layer with `n` streams. Columns of a row, where x is the logit in the column and
// `base` its element of base:
//     [0, n)             pre = sigmoid(scale[0] * x + base) + eps
//     [n, 2n)            post = 2 sigmoid(scale[1] * x + base)
//     [2n, 2n + n * n)   the matrix: softmax of each of its rows of scale[2] * x + base, plus eps;
//                        then its columns are divided by their sums plus eps, and `iterations` - 1
//                        times its rows and its columns (Sinkhorn and Knopp 1967)
// At the end of the model a row has only pre: n columns, and one element of scale.
struct StreamWeights {
    static constexpr OpRow kRow{"stream_weights",
                                "logits[T,m]:exact base[m] scale[_] -> weights[T,m]:exact",
                                Pass::kInference, Trait::kRowWise};
    int64_t streams = 1, iterations = 1;
    float eps = 0;
    void Show(auto& show) const {
        show("streams", streams);
        show("iterations", iterations);
        show("eps", eps);
    }
};

struct MergeStreams {  // y = sum over the streams i of pre[i] * x[i]
    static constexpr OpRow kRow{"merge_streams", "x[T,_] weights[T,_]:exact -> y[T,n]",
                                Pass::kInference, Trait::kRowWise, 2};
    int64_t streams = 1;
    void Show(auto& show) const { show("streams", streams); }
};

// y[k] = post[k] * update + sum over the streams j of matrix[j][k] * x[j]. Without x and weights,
// y[k] = update.
struct MixStreams {
    static constexpr OpRow kRow{"mix_streams", "(x[T,m] weights[T,_]:exact) update[T,n] -> y[T,m]",
                                Pass::kInference, Trait::kRowWise};
    int64_t streams = 1;
    void Show(auto& show) const { show("streams", streams); }
};

}  // namespace weft::program
