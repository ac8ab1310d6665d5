// Hyper-connections, as structs with rows (ops.h): a residual stream of several parallel copies,
// the streams (Zhu et al. 2024; constrained to a manifold: Xie et al. 2026; DeepSeek-V4). Below
// them are the ops of Gemma 3n, which has the streams of AltUp (Baykal et al. 2023).
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
// At the end of the model a row has only pre: n columns, and one element of scale. Streams that are
// not mixed (Hy4) have rows of 2n columns and two elements of scale, and post = magnitude *
// sigmoid(scale[1] * x + base) + eps.
struct StreamWeights {
    static constexpr OpRow kRow{"stream_weights",
                                "logits[T,m]:exact base[m] scale[_] -> weights[T,m]:exact",
                                Pass::kInference, Trait::kRowWise};
    int64_t streams = 1, iterations = 1;
    float eps = 0, magnitude = 2;
    void Show(auto& show) const {
        show("streams", streams);
        show("iterations", iterations);
        show("eps", eps);
        if (magnitude != 2) show("magnitude", magnitude);
    }
};

struct MergeStreams {  // y = sum over the streams i of pre[i] * x[i]
    static constexpr OpRow kRow{"merge_streams", "x[T,_] weights[T,_]:exact -> y[T,n]",
                                Pass::kInference, Trait::kRowWise, 2};
    int64_t streams = 1;
    void Show(auto& show) const { show("streams", streams); }
};

// y[k] = post[k] * update + sum over the streams j of matrix[j][k] * x[j]. Weights without a matrix
// add x[k] instead of the sum. Without x and weights, y[k] = update.
struct MixStreams {
    static constexpr OpRow kRow{"mix_streams", "(x[T,m] weights[T,_]:exact) update[T,n] -> y[T,m]",
                                Pass::kInference, Trait::kRowWise};
    int64_t streams = 1;
    void Show(auto& show) const { show("streams", streams); }
};

// ---- Gemma 3n -----------------------------------------------------------------------------------

// Weights of MixStreams for AltUp, without pre. A layer computes only stream 0.
//     predict  coefs [T, n * n]: y[k] = x[k] + sum over the streams j of coefs[k * n + j] * x[j]
//     correct  coefs [T, n]: y[k] = x[k] + (1 + coefs[k]) * (update - x[0])
struct AltUpWeights {
    static constexpr OpRow kRow{"alt_up_weights", "coefs[T,_]:exact -> weights[T,_]:exact",
                                Pass::kInference, Trait::kRowWise};
    int64_t streams = 1;
    bool corrects = false;
    void Show(auto& show) const {
        show("streams", streams);
        show.Flag("corrects", corrects);
    }
};

// Each part of x, as wide as `like`, times the root of the mean square of `like` over its own. A
// mean square counts as at least 1e-5.
struct MatchStreams {
    static constexpr OpRow kRow{"match_streams", "x[T,_] like[T,n] -> y[T,_]", Pass::kInference,
                                Trait::kRowWise, 3};
};

struct ScaleColumns {  // the first n columns of x, each times its element of weight
    static constexpr OpRow kRow{"scale_columns", "x[T,_]:part weight[n] -> y[T,n]",
                                Pass::kInference, Trait::kRowWise, 1};
};

// The sum of a row, and the sum of its squares.
struct RowMoments {
    static constexpr OpRow kRow{"row_moments", "x[T,n] -> y[T,2]:f64", Pass::kInference,
                                Trait::kRowWise | Trait::kExact, 3};
};
// max(0, x - cut), where cut is the mean of the row plus `deviations` standard deviations, from the
// moments of the whole row, which has `whole` columns.
struct Sparsify {
    static constexpr OpRow kRow{"sparsify", "x[T,n] moments[T,2]:exact -> y[T,n]", Pass::kInference,
                                Trait::kRowWise, 2};
    int64_t whole = 1;
    float deviations = 0;
    void Show(auto& show) const {
        show("whole", whole);
        show("deviations", deviations);
    }
};

}  // namespace weft::program
