#include "kernels/streams.h"

#include <algorithm>
#include <cmath>

namespace weft::kernels {
namespace {

// Parts divide blocks of this many columns, so that a step of one row has work for all parts.
constexpr int64_t kBlock = 1024;

float SigmoidOf(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

void Softmax(float* row, int64_t n) {
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] - largest);
    for (int64_t i = 0; i < n; ++i) row[i] /= sum;
}

// Divides n numbers, `step` apart, by their sum plus eps.
void Normalize(float* first, int64_t n, int64_t step, float eps) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += first[i * step];
    for (int64_t i = 0; i < n; ++i) first[i * step] /= sum + eps;
}

void MakeDoublyStochastic(float* matrix, const StreamWeightsArgs& args) {
    const int64_t n = args.streams;
    for (int64_t row = 0; row < n; ++row) {
        Softmax(matrix + row * n, n);
        for (int64_t i = 0; i < n; ++i) matrix[row * n + i] += args.eps;
    }
    for (int64_t time = 0; time < args.iterations; ++time) {
        for (int64_t row = 0; time > 0 && row < n; ++row) {
            Normalize(matrix + row * n, n, 1, args.eps);
        }
        for (int64_t col = 0; col < n; ++col) Normalize(matrix + col, n, n, args.eps);
    }
}

// Calls on(row, begin, end) for this part's blocks of columns.
template <typename On>
void ForColumnBlocks(int64_t rows, int64_t cols, int part, int parts, On on) {
    const int64_t blocks = (cols + kBlock - 1) / kBlock;
    const Range share = Share(rows * blocks, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t begin = unit % blocks * kBlock;
        on(unit / blocks, begin, std::min(cols, begin + kBlock));
    }
}

}  // namespace

void StreamWeights(const StreamWeightsArgs& args, int part, int parts) {
    const int64_t n = args.streams;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* x = args.logits + row * args.cols;
        float* y = args.y + row * args.cols;
        for (int64_t i = 0; i < n; ++i) {
            y[i] = SigmoidOf(x[i] * args.scale[0] + args.base[i]) + args.eps;
        }
        if (args.cols == n) continue;
        const bool mixes = args.cols > 2 * n;
        for (int64_t i = n; i < 2 * n; ++i) {
            y[i] = args.magnitude * SigmoidOf(x[i] * args.scale[1] + args.base[i]);
            if (!mixes) y[i] += args.eps;
        }
        if (!mixes) continue;
        for (int64_t i = 2 * n; i < args.cols; ++i) y[i] = x[i] * args.scale[2] + args.base[i];
        MakeDoublyStochastic(y + 2 * n, args);
    }
}

void MergeStreams(const MergeStreamsArgs& args, int part, int parts) {
    const int64_t n = args.streams, cols = args.cols;
    ForColumnBlocks(args.rows, cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
        const float* x = args.x + row * n * cols;
        const float* pre = args.weights + row * args.weight_cols;
        float* y = args.y + row * cols;
        for (int64_t i = begin; i < end; ++i) y[i] = pre[0] * x[i];
        for (int64_t stream = 1; stream < n; ++stream) {
            const float* own = x + stream * cols;
            for (int64_t i = begin; i < end; ++i) y[i] += pre[stream] * own[i];
        }
    });
}

void MixStreams(const MixStreamsArgs& args, int part, int parts) {
    const int64_t n = args.streams, cols = args.cols;
    ForColumnBlocks(args.rows, cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
        const float* update = args.update + row * cols;
        float* const out = args.y + row * n * cols;
        for (int64_t to = 0; args.x == nullptr && to < n; ++to) {
            std::copy(update + begin, update + end, out + to * cols + begin);
        }
        if (args.x == nullptr) return;
        const float* x = args.x + row * n * cols;
        const float* post = args.weights + row * args.weight_cols + n;
        const float* matrix = post + n;
        for (int64_t to = 0; to < n; ++to) {
            float* y = out + to * cols;
            if (args.weight_cols == 2 * n) {
                const float* own = x + to * cols;
                for (int64_t i = begin; i < end; ++i) y[i] = post[to] * update[i] + own[i];
                continue;
            }
            for (int64_t i = begin; i < end; ++i) y[i] = post[to] * update[i];
            for (int64_t from = 0; from < n; ++from) {
                const float weight = matrix[from * n + to];
                const float* own = x + from * cols;
                for (int64_t i = begin; i < end; ++i) y[i] += weight * own[i];
            }
        }
    });
}

// ---- Gemma 3n -----------------------------------------------------------------------------------

void AltUpWeights(const AltUpWeightsArgs& args, int part, int parts) {
    const int64_t n = args.streams;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* coefs = args.coefs + row * (args.corrects ? n : n * n);
        float* const y = args.y + row * args.cols;
        std::fill_n(y, 2 * n, 0.0f);
        float* const matrix = y + 2 * n;
        for (int64_t to = 0; to < n; ++to) {
            if (args.corrects) y[n + to] = 1 + coefs[to];
            for (int64_t from = 0; from < n; ++from) {
                const float of_first = from == 0 ? -(1 + coefs[to]) : 0.0f;
                matrix[from * n + to] =
                    (from == to ? 1.0f : 0.0f) + (args.corrects ? of_first : coefs[to * n + from]);
            }
        }
    }
}

void MatchStreams(const MatchStreamsArgs& args, int part, int parts) {
    constexpr double kLeast = 1e-5;
    const int64_t cols = args.target_cols, streams = args.cols / cols;
    const auto mean_square = [cols](const float* x) {
        double sum = 0;
        for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(x[i]) * x[i];
        return sum / static_cast<double>(cols);
    };
    const Range share = Share(args.rows * streams, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const float* const x = args.x + unit * cols;
        const double like = mean_square(args.target + unit / streams * cols);
        const double own = std::max(mean_square(x), kLeast);
        const auto factor = static_cast<float>(std::sqrt(like / own));
        for (int64_t i = 0; i < cols; ++i) args.y[unit * cols + i] = factor * x[i];
    }
}

void ScaleColumns(const ScaleColumnsArgs& args, int part, int parts) {
    ForColumnBlocks(args.rows, args.cols, part, parts,
                    [&](int64_t row, int64_t begin, int64_t end) {
                        const float* const x = args.x + row * args.x_cols;
                        float* const y = args.y + row * args.cols;
                        for (int64_t i = begin; i < end; ++i) y[i] = x[i] * args.weight[i];
                    });
}

// As SumSquares: in double, in eight parallel sums.
void RowMoments(const RowMomentsArgs& args, int part, int parts) {
    constexpr int64_t kSums = 8;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* const x = args.x + row * args.x_cols;
        double sums[kSums] = {}, squares[kSums] = {};
        for (int64_t i = 0; i < args.x_cols; ++i) {
            const double value = x[i];
            sums[i % kSums] += value;
            squares[i % kSums] += value * value;
        }
        double moments[2] = {};
        for (int64_t i = 0; i < kSums; ++i) moments[0] += sums[i], moments[1] += squares[i];
        for (int64_t i = 0; i < 2; ++i) {
            if (args.wide != nullptr) args.wide[row * 2 + i] = moments[i];
            if (args.y != nullptr) args.y[row * 2 + i] = static_cast<float>(moments[i]);
        }
    }
}

void Sparsify(const SparsifyArgs& args, int part, int parts) {
    const auto whole = static_cast<double>(args.whole);
    ForColumnBlocks(
        args.rows, args.cols, part, parts, [&](int64_t row, int64_t begin, int64_t end) {
            const double mean = args.moments[row * 2] / whole;
            const double variance = args.moments[row * 2 + 1] / whole - mean * mean;
            const auto cut = static_cast<float>(mean + static_cast<double>(args.deviations) *
                                                           std::sqrt(std::max(variance, 0.0)));
            const float* const x = args.x + row * args.cols;
            float* const y = args.y + row * args.cols;
            for (int64_t i = begin; i < end; ++i) y[i] = std::max(x[i] - cut, 0.0f);
        });
}

// ---- LongCat-Flash ------------------------------------------------------------------------------

void IdentityExperts(const IdentityExpertsArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        float sum = 0;
        for (int64_t slot = row * args.used; slot < (row + 1) * args.used; ++slot) {
            if (args.ids[slot] >= args.first) sum += args.weights[slot];
        }
        const float* const x = args.x + row * args.cols;
        float* const y = args.y + row * args.cols;
        for (int64_t i = 0; i < args.cols; ++i) y[i] = sum * x[i];
    }
}

}  // namespace weft::kernels
