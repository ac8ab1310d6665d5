// The row-wise kernels as dense/rows.h and kernels/args.h define them, element by element.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/ops.h"

namespace weft::kernels::reference {
namespace {

using namespace dense;

// One gated unit: act(gate) * up.
float Gated(Activation activation, float gate, float up) {
    switch (activation) {
        case Activation::kSilu: return gate / (1.0f + std::exp(-gate)) * up;
        case Activation::kGeluTanh: {
            const float u = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
            return gate / (1.0f + std::exp(-2.0f * u)) * up;
        }
        case Activation::kClampedSilu: {
            const float a = std::min(gate, 7.0f);
            const float b = std::clamp(up, -7.0f, 7.0f);
            return a / (1.0f + std::exp(-1.702f * a)) * (b + 1.0f);
        }
    }
    return 0;
}

// Calls on(row, column) for each element of this part.
template <typename On>
void ForElements(int64_t rows, int64_t cols, int part, int parts, const On& on) {
    const Range share = Share(rows * cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) on(i / cols, i % cols);
}

float Mean(const ConstMatrix& x, int64_t row, int64_t begin, int64_t group) {
    float sum = 0;
    for (int64_t i = begin; i < begin + group; ++i) sum += Get(x, row, i);
    return sum / static_cast<float>(group);
}

// 1 / sqrt(mean((x - center)^2) + eps) of the group from `begin` on.
float InverseRms(const ConstMatrix& x, int64_t row, int64_t begin, int64_t group, float eps,
                 float center = 0) {
    float squares = 0;
    for (int64_t i = begin; i < begin + group; ++i) {
        const float value = Get(x, row, i) - center;
        squares += value * value;
    }
    return 1.0f / std::sqrt(squares / static_cast<float>(group) + eps);
}

void Norm(const dense::RmsNormArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t begin = 0; begin < args.cols; begin += args.group) {
            float scale = 0, center = 0;
            if (args.centered) center = Mean(args.x, row, begin, args.group);
            if (args.squares != nullptr) {
                const float whole = static_cast<float>(args.whole);
                scale =
                    1.0f / std::sqrt(args.squares[row * args.squares_stride] / whole + args.eps);
            } else {
                scale = InverseRms(args.x, row, begin, args.group, args.eps, center);
            }
            for (int64_t i = 0; i < args.group; ++i) {
                const float weight = args.weight == nullptr ? 1.0f : args.weight[i];
                Put(args.y, row, begin + i,
                    (Get(args.x, row, begin + i) - center) * scale * weight);
            }
        }
    }
}

void NormGradInput(const RmsNormGradArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t begin = 0; begin < args.cols; begin += args.group) {
            const float scale = InverseRms(args.x, row, begin, args.group, args.eps);
            if (args.inverse != nullptr) {
                args.inverse[(row * args.cols + begin) / args.group] = scale;
            }
            const auto weighted = [&](int64_t i) {
                const float weight = args.weight == nullptr ? 1.0f : args.weight[i];
                return Get(args.dy, row, begin + i) * weight;
            };
            float along = 0;  // sum of dy * w * x
            for (int64_t i = 0; i < args.group; ++i) {
                along += weighted(i) * Get(args.x, row, begin + i);
            }
            const float pull = scale * scale * along / static_cast<float>(args.group);
            for (int64_t i = 0; i < args.group; ++i) {
                const float x = Get(args.x, row, begin + i);
                Put(args.dx, row, begin + i, scale * (weighted(i) - x * pull));
            }
        }
    }
}

// Recomputes the inverse instead of reading it: it is written for other readers.
void NormGradWeight(const RmsNormGradArgs& args, int part, int parts) {
    const Range share = Share(args.group, 1, part, parts);
    for (int64_t row = 0; row < args.rows; ++row) {
        for (int64_t begin = 0; begin < args.cols; begin += args.group) {
            const float scale = InverseRms(args.x, row, begin, args.group, args.eps);
            for (int64_t i = share.begin; i < share.end; ++i) {
                args.dw[i] += Get(args.dy, row, begin + i) * Get(args.x, row, begin + i) * scale;
            }
        }
    }
}

void Glu(const dense::GluArgs& args, int part, int parts) {
    ForElements(args.rows, args.cols, part, parts, [&](int64_t row, int64_t i) {
        float gate = Get(args.gate, row, i), up = Get(args.up, row, i);
        if (args.limit != 0) {
            if (args.limits_gate) gate = std::min(gate, args.limit);
            gate = std::min(Gated(args.activation, gate, 1), args.limit);
            Put(args.out, row, i, gate * std::clamp(up, -args.limit, args.limit));
        } else {
            Put(args.out, row, i, Gated(args.activation, gate, up));
        }
    });
}

void GluGrad(const GluGradArgs& args, int part, int parts) {
    WEFT_CHECK(args.activation != Activation::kClampedSilu);
    const bool gelu = args.activation == Activation::kGeluTanh;
    const float root = 0.7978845608f;  // sqrt(2 / pi)
    ForElements(args.rows, args.cols, part, parts, [&](int64_t row, int64_t i) {
        const float dout = Get(args.dout, row, i), up = Get(args.up, row, i);
        const float gate = Get(args.gate, row, i), square = 0.044715f * gate * gate;
        const float u = gelu ? 2.0f * root * gate * (1.0f + square) : gate;
        const float slope = gelu ? 2.0f * root * (1.0f + 3.0f * square) : 1.0f;  // of u
        const float sigmoid = 1.0f / (1.0f + std::exp(-u));
        Put(args.dup, row, i, dout * gate * sigmoid);
        Put(args.dgate, row, i, dout * up * sigmoid * (1.0f + gate * slope * (1.0f - sigmoid)));
    });
}

void Rope(const dense::RopeArgs& args, int part, int parts) {
    const int64_t pairs = args.rotary_dim / 2;
    const int64_t step = args.neighbours ? 2 : 1;       // from one pair to the next
    const int64_t apart = args.neighbours ? 1 : pairs;  // from a pair's first element to its second
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t unit = rows.begin * args.heads; unit < rows.end * args.heads; ++unit) {
        const int64_t row = unit / args.heads, head = unit % args.heads * args.head_dim;
        const int64_t column = head + (args.last ? args.head_dim - args.rotary_dim : 0);
        const float* table = args.cos_sin + row * args.rotary_dim;
        for (int64_t i = 0; i < pairs; ++i) {
            const int64_t at = column + i * step;
            const float cosine = table[i], sine = args.sign * table[pairs + i];
            const float first = Get(args.x, row, at), second = Get(args.x, row, at + apart);
            Put(args.y, row, at, first * cosine - second * sine);
            Put(args.y, row, at + apart, second * cosine + first * sine);
        }
        for (int64_t i = head; i < head + args.head_dim; ++i) {
            if (i >= column && i < column + args.rotary_dim) continue;
            Put(args.y, row, i, Get(args.x, row, i));
        }
    }
}

void Add(const dense::AddArgs& args, int part, int parts) {
    ForElements(args.rows, args.cols, part, parts, [&](int64_t row, int64_t i) {
        Put(args.y, row, i, Get(args.a, row, i) + Get(args.b, row, i));
    });
}

void AddBias(const dense::AddBiasArgs& args, int part, int parts) {
    ForElements(args.rows, args.cols, part, parts, [&](int64_t row, int64_t i) {
        Put(args.y, row, i, Get(args.x, row, i) + args.bias[i]);
    });
}

void BiasGrad(const BiasGradArgs& args, int part, int parts) {
    const Range share = Share(args.cols, 1, part, parts);
    for (int64_t row = 0; row < args.rows; ++row) {
        for (int64_t i = share.begin; i < share.end; ++i) args.db[i] += Get(args.dy, row, i);
    }
}

void Scale(const dense::ScaleArgs& args, int part, int parts) {
    ForElements(args.rows, args.cols, part, parts, [&](int64_t row, int64_t i) {
        Put(args.y, row, i, args.FactorOf(row) * Get(args.x, row, i));
    });
}

void SoftmaxStats(const SoftmaxStatsArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* logits = args.logits + row * args.cols;
        const int64_t target = args.targets[row] - args.first;
        float largest = logits[0], sum = 0;
        for (int64_t i = 1; i < args.cols; ++i) largest = std::max(largest, logits[i]);
        for (int64_t i = 0; i < args.cols; ++i) sum += std::exp(logits[i] - largest);
        const bool own = args.targets[row] >= 0 && target >= 0 && target < args.cols;
        float* stats = args.stats + row * args.each();
        stats[0] = largest;
        stats[1] = sum;
        stats[2] = own ? logits[target] : 0;
        if (args.sums) stats[3] = std::accumulate(logits, logits + args.cols, 0.0f);
    }
}

void CrossEntropyGrad(const CrossEntropyGradArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* logits = args.logits + row * args.cols;
        const bool counts = args.targets[row] >= 0;
        const SoftmaxTotal total =
            TotalOf(args.stats + row * args.ranks * args.terms.stats(), args.ranks, args.terms);
        const dense::SoftmaxSlope slope = SlopeOf(total, args.dloss[row], args.terms);
        for (int64_t i = 0; i < args.cols; ++i) {
            const float p = std::exp(logits[i] - total.largest) * slope.factor - slope.share;
            const bool chosen = args.first + i == args.targets[row];
            logits[i] = counts ? (chosen ? p - slope.chosen : p) : 0;
        }
    }
}

void SoftCapGrad(const SoftCapGradArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const float t = std::tanh(args.x[i] / args.cap);
        args.dx[i] = args.dy[i] * (1 - t * t);
    }
}

void Adam(const AdamArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const float g = args.grad_scale * Get({args.g, 0, args.g_type}, 0, i) + args.l2 * args.p[i];
        args.m[i] = args.beta1 * args.m[i] + (1 - args.beta1) * g;
        args.v[i] = args.beta2 * args.v[i] + (1 - args.beta2) * g * g;
        const float m = args.m[i] / args.correction1, v = args.v[i] / args.correction2;
        args.p[i] -= args.rate * (args.decay * args.p[i] + m / (std::sqrt(v) + args.eps));
        if (args.copy != nullptr) Put({args.copy, 0, args.copy_type}, 0, i, args.p[i]);
    }
}

void Sgd(const SgdArgs& args, int part, int parts) {
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const float g = args.grad_scale * Get({args.g, 0, args.g_type}, 0, i) + args.l2 * args.p[i];
        float change = g;
        if (args.b != nullptr) {
            args.b[i] = args.momentum * args.b[i] + args.taken * g;
            change = args.nesterov ? g + args.momentum * args.b[i] : args.b[i];
        }
        args.p[i] -= args.rate * change;
        if (args.copy != nullptr) Put({args.copy, 0, args.copy_type}, 0, i, args.p[i]);
    }
}

}  // namespace

// One definition for all instruction sets. Double precision makes the result independent of where
// ranks cut the columns; eight parallel sums let the compiler vectorize.
void SumSquares(const SumSquaresArgs& args, int part, int parts) {
    constexpr int kSums = 8;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* x = args.x + row * args.x_stride;
        double sums[kSums] = {};
        int64_t i = 0;
        for (; i + kSums <= args.cols; i += kSums) {
            for (int lane = 0; lane < kSums; ++lane) {
                const double value = x[i + lane];
                sums[lane] += value * value;
            }
        }
        for (; i < args.cols; ++i) sums[0] += static_cast<double>(x[i]) * x[i];
        double sum = 0;
        for (double lane : sums) sum += lane;
        if (args.wide != nullptr) args.wide[row * args.y_stride] = sum;
        if (args.y != nullptr) args.y[row * args.y_stride] = static_cast<float>(sum);
    }
}

void RopeTable(const RopeTableArgs& args, int part, int parts) {
    const int64_t pairs = args.rotary_dim / 2;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        float* out = args.out + row * args.rotary_dim;
        for (int64_t i = 0; i < pairs; ++i) {
            const auto position = std::max<int64_t>(args.positions[row] - args.behind, 0);
            const double angle =
                static_cast<double>(position) * static_cast<double>(args.inverse_frequency[i]);
            const double magnitude = static_cast<double>(args.magnitude);
            out[i] = static_cast<float>(magnitude * std::cos(angle));
            out[pairs + i] = static_cast<float>(magnitude * std::sin(angle));
        }
    }
}

void SoftCap(const SoftCapArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        args.y[i] = args.cap * std::tanh(args.x[i] / args.cap);
    }
}

const dense::RowKernels kRows = {
    .rms_norm = Norm,
    .norm_grad_input = NormGradInput,
    .norm_grad_weight = NormGradWeight,
    .glu = Glu,
    .glu_grad = GluGrad,
    .rope = Rope,
    .add = Add,
    .add_bias = AddBias,
    .bias_grad = BiasGrad,
    .scale = Scale,
    .softmax_stats = SoftmaxStats,
    .cross_entropy_grad = CrossEntropyGrad,
    .soft_cap_grad = SoftCapGrad,
    .adam = Adam,
    .sgd = Sgd,
};

}  // namespace weft::kernels::reference
