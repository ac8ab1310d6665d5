// Optimizers without a kernel of each instruction set: Lion, schedule-free AdamW, Muon.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/dense/update.h"
#include "tensor/half_rows.h"

namespace weft::kernels::dense {
namespace {

constexpr int64_t kBlock = 1024;  // elements that are updated at a time

DType TypeOf(Element type) {
    if (type == Element::kF32) return DType::kF32;
    return type == Element::kF16 ? DType::kF16 : DType::kBF16;
}

// g = grad_scale * gradients [begin, begin + g.size()).
void TakeGradients(const UpdatedPart& own, double grad_scale, int64_t begin, std::span<float> g) {
    const auto* const from =
        static_cast<const std::byte*>(own.g) + begin * ElementBytes(own.g_type);
    if (own.g_type == Element::kF32) {
        std::copy_n(reinterpret_cast<const float*>(from), g.size(), g.begin());
    } else {
        WidenRow(TypeOf(own.g_type), from, g);
    }
    const auto factor = static_cast<float>(grad_scale);
    for (float& x : g) x *= factor;
}

void WriteCopy(void* copy, Element type, int64_t begin, std::span<const float> p) {
    if (copy == nullptr) return;
    auto* const to = static_cast<std::byte*>(copy) + begin * ElementBytes(type);
    if (type == Element::kF32) {
        std::ranges::copy(p, reinterpret_cast<float*>(to));
    } else {
        NarrowRow(TypeOf(type), p, to);
    }
}

// Calls f(run, begin, kept, count) for blocks of this part's elements.
template <typename Args, typename F>
void ForBlocks(const Args& args, int part, int parts, const F& f) {
    for (const UpdateRun& run : std::span(args.runs, static_cast<size_t>(args.run_count))) {
        const Range share = Share(run.count, 16, part, parts);
        for (int64_t at = share.begin; at < share.end; at += kBlock) {
            f(run, run.begin + at, run.kept + at, std::min(kBlock, share.end - at));
        }
    }
}
// Calls update(decay, g, begin, kept) for such blocks, with the gradients, and writes the copy.
template <typename Args, typename F>
void UpdateBlocks(const Args& args, int part, int parts, const F& update) {
    ForBlocks(args, part, parts,
              [&](const UpdateRun& run, int64_t begin, int64_t kept, int64_t count) {
                  float room[kBlock];
                  const std::span g(room, static_cast<size_t>(count));
                  TakeGradients(args.own, args.numbers->gradient_scale, begin, g);
                  update(run.decays ? static_cast<float>(args.decay) : 0.0f, g, begin, kept);
                  WriteCopy(args.own.copy, args.own.copy_type, begin,
                            {args.own.p + begin, static_cast<size_t>(count)});
              });
}

}  // namespace

void LionRuns(const LionRunsArgs& args, int part, int parts) {
    const auto rate = static_cast<float>(args.numbers->rate);
    const auto beta1 = static_cast<float>(args.beta1), beta2 = static_cast<float>(args.beta2);
    UpdateBlocks(args, part, parts,
                 [&](float decay, std::span<const float> g, int64_t begin, int64_t kept) {
                     float* const p = args.own.p + begin;
                     float* const m = args.m + kept;
                     const float left = 1 - rate * decay;
                     for (size_t i = 0; i < g.size(); ++i) {
                         const float way = beta1 * m[i] + (1 - beta1) * g[i];
                         const float sign = way > 0 ? 1.0f : way < 0 ? -1.0f : 0.0f;
                         p[i] = p[i] * left - rate * sign;
                         m[i] = beta2 * m[i] + (1 - beta2) * g[i];
                     }
                 });
}

void ScheduleFreeRuns(const ScheduleFreeRunsArgs& args, int part, int parts) {
    const UpdateNumbers& numbers = *args.numbers;
    const auto beta2 = static_cast<float>(args.beta2), eps = static_cast<float>(args.eps);
    const auto correction =
        static_cast<float>(1 - std::pow(double{beta2}, static_cast<double>(numbers.number)));
    const auto share = static_cast<float>(numbers.average_share);
    const auto rate = static_cast<float>(numbers.rate);
    const auto pull =
        static_cast<float>(numbers.rate * (args.beta1 * (1 - numbers.average_share) - 1));
    UpdateBlocks(
        args, part, parts, [&](float decay, std::span<const float> g, int64_t begin, int64_t kept) {
            float* const y = args.own.p + begin;
            float* const z = args.z + kept;
            float* const v = args.v + kept;
            for (size_t i = 0; i < g.size(); ++i) {
                v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
                const float step = g[i] / (std::sqrt(v[i] / correction) + eps) + decay * y[i];
                y[i] += share * (z[i] - y[i]) + pull * step;
                z[i] -= rate * step;
            }
        });
}

void ScheduleFreeView(const ScheduleFreeViewArgs& args, int part, int parts) {
    const auto away = static_cast<float>(1 - 1 / args.beta1);
    ForBlocks(args, part, parts, [&](const UpdateRun&, int64_t begin, int64_t kept, int64_t count) {
        float* const y = args.p + begin;
        float* const aside = args.kept + begin;
        const float* const z = args.z + kept;
        if (args.copy == nullptr && !args.averaged) {
            std::copy_n(aside, count, y);
            return;
        }
        float x[kBlock];
        for (int64_t i = 0; i < count; ++i)
            x[i] = args.averaged ? y[i] + away * (z[i] - y[i]) : y[i];
        if (args.copy != nullptr) {
            WriteCopy(args.copy, args.copy_type, begin, {x, static_cast<size_t>(count)});
            return;
        }
        std::copy_n(y, count, aside);
        std::copy_n(x, count, y);
    });
}

// ---- Muon --------------------------------------------------------------------------------------

namespace {

// Index in x of element (row, col) of the matrix.
int64_t At(const MuonArgs& args, int64_t row, int64_t col) {
    const UpdateMatrix& matrix = args.matrix;
    return args.turned() ? col * matrix.rows + row : row * matrix.cols + col;
}

}  // namespace

void MuonStep(const MuonArgs& args, int part, int parts) {
    const UpdateMatrix& matrix = args.matrix;
    const auto momentum = static_cast<float>(args.momentum);
    const Range rows = Share(matrix.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        double squares = 0;
        for (int64_t begin = 0; begin < matrix.cols; begin += kBlock) {
            float room[kBlock];
            const std::span g(room, static_cast<size_t>(std::min(kBlock, matrix.cols - begin)));
            const int64_t first = row * matrix.cols + begin;
            TakeGradients(args.own, args.numbers->gradient_scale, matrix.begin + first, g);
            float* const m = args.m + matrix.kept + first;
            for (size_t i = 0; i < g.size(); ++i) {
                m[i] += (1 - momentum) * (g[i] - m[i]);
                const float step = args.nesterov ? g[i] + momentum * (m[i] - g[i]) : m[i];
                squares += double{step} * double{step};
                args.x[At(args, row, begin + static_cast<int64_t>(i))] = step;
            }
        }
        args.row_squares[row] = squares;
    }
}

void MuonScale(const MuonArgs& args, int part, int parts) {
    const UpdateMatrix& matrix = args.matrix;
    const double squares = std::accumulate(args.row_squares, args.row_squares + matrix.rows, 0.0);
    const float norm = std::max(static_cast<float>(std::sqrt(squares)), 1e-7f);
    const Range share = Share(matrix.rows * matrix.cols, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.x[i] /= norm;
}

void MuonMix(const MuonMixArgs& args, int part, int parts) {
    constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;  // torch.optim.Muon's
    const Range square = Share(args.square, 16, part, parts);
    for (int64_t i = square.begin; i < square.end; ++i) {
        args.mixed[i] = kB * args.gram[i] + kC * args.mixed[i];
    }
    const Range share = Share(args.count, 16, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) args.next[i] = kA * args.x[i];
}

void MuonApply(const MuonArgs& args, int part, int parts) {
    const UpdateMatrix& matrix = args.matrix;
    const auto rows = static_cast<double>(matrix.rows), cols = static_cast<double>(matrix.cols);
    const double size = args.adam_size ? 0.2 * std::sqrt(std::max(rows, cols))
                                       : std::sqrt(std::max(1.0, rows / cols));
    const auto rate = static_cast<float>(args.numbers->rate * size);
    const auto left = static_cast<float>(1 - args.numbers->rate * args.decay);
    const Range share = Share(matrix.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const int64_t first = matrix.begin + row * matrix.cols;
        float* const p = args.own.p + first;
        for (int64_t c = 0; c < matrix.cols; ++c)
            p[c] = p[c] * left - rate * args.x[At(args, row, c)];
        WriteCopy(args.own.copy, args.own.copy_type, first, {p, static_cast<size_t>(matrix.cols)});
    }
}

}  // namespace weft::kernels::dense
