#include "kernels/dense/experts.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/dense/row_copy.h"
#include "kernels/share_strips.h"

namespace weft::kernels::dense {
namespace {

float Sigmoid(float x) {
    return 1.0f / (1.0f + std::exp(-x));
}

float Softplus(float x) {
    return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

void Scores(const float* logits, int64_t experts, bool sigmoid, float* scores) {
    if (sigmoid) {
        std::transform(logits, logits + experts, scores, Sigmoid);
        return;
    }
    const float most = *std::max_element(logits, logits + experts);
    double sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
        scores[e] = std::exp(logits[e] - most);
        sum += double{scores[e]};
    }
    const auto inverse = static_cast<float>(1 / sum);
    for (int64_t e = 0; e < experts; ++e) scores[e] *= inverse;
}

GemmOperand OperandOf(const ConstMatrix& x, bool transposed = false) {
    return {x.data, transposed ? 1 : x.stride, transposed ? x.stride : 1, x.type};
}

GemmOperand ColumnsFrom(GemmOperand x, int64_t col) {
    x.data = static_cast<const std::byte*>(x.data) + col * x.col * ElementBytes(x.type);
    return x;
}

// Products are cut at whole tiles of all levels. Packing a matrix takes about as long as
// multiplying it with 24 rows (measured with AVX-512 and BF16).
constexpr Strips kStrips{32, 24};

// The product of expert `expert`, whose rows are [row, row + rows).
GemmArgs ProductOf(const ExpertGemmArgs& args, int64_t expert, int64_t row, int64_t rows) {
    const int64_t matrix_row = (expert - args.first) * args.n;
    const ConstMatrix a = args.a.From(row, 0);
    GemmArgs g;
    g.compute = args.compute;
    if (args.product == ExpertProduct::kTN) {
        g.a = OperandOf(a, true);
        g.b = OperandOf(args.b.From(row, 0));
        g.c = args.dw.From(matrix_row, 0);
        g.m = args.n, g.n = args.k, g.k = rows;
        g.accumulate = true;
        return g;
    }
    const bool transposed = args.product == ExpertProduct::kNT;
    g.a = OperandOf(a);
    g.b = OperandOf(args.w.From(matrix_row, 0), transposed);
    g.c = args.c.From(row, 0);
    g.m = rows, g.n = transposed ? args.n : args.k, g.k = transposed ? args.k : args.n;
    return g;
}

// The factor of the load-balancing loss: experts / rows^2.
double BalanceFactor(const float* counts, int64_t experts, int64_t used) {
    double choices = 0;
    for (int64_t e = 0; e < experts; ++e) choices += double{counts[e]};
    const double rows = std::max(choices / static_cast<double>(used), 1.0);
    return static_cast<double>(experts) / (rows * rows);
}

}  // namespace

void GatherRows(const Kernels& kernels, const GatherRowsArgs& args, int part, int parts) {
    const Range share = Share(args.plan.begin[args.experts], 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t slot = args.plan.slots[i];
        const float weight = args.weights == nullptr ? 1.0f : args.weights[slot];
        CopyRow(kernels, args.x, slot / args.used, args.y, i, args.cols, weight);
    }
}

int64_t ExpertGemmScratchBytes(const Kernels& kernels, const ExpertGemmArgs& args, int64_t slots) {
    const int64_t bytes = kernels.gemm_scratch_bytes(ProductOf(args, args.first, 0, slots));
    return (bytes + 63) / 64 * 64;
}

void ExpertGemm(const Kernels& kernels, const ExpertGemmArgs& args, int part, int parts) {
    const std::span<std::byte> scratch(args.scratch + part * args.scratch_bytes,
                                       static_cast<size_t>(args.scratch_bytes));
    const auto rows = [&](int64_t i) {
        return int64_t{args.begin[args.first + i + 1]} - args.begin[args.first + i];
    };
    const auto product = [&](int64_t i) {
        return ProductOf(args, args.first + i, args.begin[args.first + i], rows(i));
    };
    const int64_t experts = args.last - args.first;
    const auto cost = [&](int64_t i) { return rows(i) == 0 ? 0 : rows(i) + kStrips.cost; };
    int64_t total = 0;
    for (int64_t i = 0; i < experts; ++i) total += cost(i);
    // Each part packs the matrices that parts share. So parts share as few products as possible,
    // and divide those larger than two parts' work like Kernels::gemm.
    const auto is_large = [&](int64_t i) { return cost(i) * parts > 2 * total; };
    for (int64_t i = 0; i < experts; ++i) {
        if (is_large(i)) kernels.gemm(product(i), scratch, part, parts);
    }
    const int64_t cols = args.product == ExpertProduct::kNT ? args.n : args.k;
    const auto small_rows = [&](int64_t i) { return is_large(i) ? 0 : rows(i); };
    ShareStrips(kStrips, experts, cols, small_rows, part, parts, [&](int64_t i, Range range) {
        GemmArgs g = product(i);
        g.b = ColumnsFrom(g.b, range.begin);
        g.c = g.c.From(0, range.begin);
        g.n = range.end - range.begin;
        kernels.gemm(g, scratch, 0, 1);
    });
}

int64_t CombineScratchBytes(const CombineArgs& args) {
    return 2 * FloatScratchBytes(args.cols);
}

void Combine(const Kernels& kernels, const CombineArgs& args, int part, int parts) {
    float* const floats = ScratchFloats(args, part);
    const Matrix sum{floats, args.cols};
    const Matrix weighted{floats + FloatScratchBytes(args.cols) / 4, args.cols};
    const ConstMatrix x{args.x, args.cols};
    const Range share = Share(args.tokens, 1, part, parts);
    for (int64_t token = share.begin; token < share.end; ++token) {
        bool any = false;
        for (int64_t slot = token * args.used; slot < (token + 1) * args.used; ++slot) {
            const int64_t at = args.plan.place[slot];
            if (at < 0) continue;
            const float weight = args.weights == nullptr ? 1.0f : args.weights[slot];
            CopyRow(kernels, x, at, any ? weighted : sum, 0, args.cols, weight);
            if (any) AddRow(kernels, weighted, sum, sum, args.cols);
            any = true;
        }
        const Matrix y = args.y.From(token, 0);
        if (args.base.data != nullptr && any) {
            const ConstMatrix base = args.base.From(token, 0);
            AddRow(kernels, base, sum, sum, args.cols);
        }
        if (any) {
            CopyRow(kernels, sum, 0, y, 0, args.cols);
        } else if (args.base.data != nullptr) {
            CopyRow(kernels, args.base, token, y, 0, args.cols);
        } else {
            ClearRow(y, 0, 0, args.cols);
        }
    }
}

int64_t ExpertWeightGradScratchBytes(const ExpertWeightGradArgs& args) {
    return FloatScratchBytes(args.cols);
}

void ExpertWeightGrad(const Kernels& kernels, const ExpertWeightGradArgs& args, int part,
                      int parts) {
    float* const row = ScratchFloats(args, part);
    const ConstMatrix products{args.products, args.cols};
    const Range share = Share(args.tokens * args.used, 1, part, parts);
    for (int64_t slot = share.begin; slot < share.end; ++slot) {
        const int64_t at = args.plan.place[slot];
        args.dweights[slot] = 0;
        if (at < 0) continue;
        CopyRow(kernels, args.x, at, {row, args.cols}, 0, args.cols);
        args.dweights[slot] = DotInLanes(products.Row<float>(at), row, args.cols);
        CopyRow(kernels, products, at, args.dx, at, args.cols, args.weights[slot]);
    }
}

void ClearRest(const ClearRestArgs& args, int part, int parts) {
    const int64_t held = args.plan.begin[args.experts];
    const Range share = Share(args.tokens * args.used - held, 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) ClearRow(args.y, held + i, 0, args.cols);
}

// ---- Biases and weighed inputs -----------------------------------------------------------------

void ExpertBias(const Kernels& kernels, const ExpertBiasArgs& args, int part, int parts) {
    const int32_t *begin = args.plan.begin, *end = begin + args.experts + 1;
    const Range share = Share(args.plan.begin[args.experts], 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t expert = std::upper_bound(begin, end, i) - begin - 1;
        AddRow(kernels, args.x.From(i, 0), {args.bias + expert * args.cols, args.cols},
               args.y.From(i, 0), args.cols);
    }
}

int64_t ExpertBiasGradScratchBytes(const ExpertBiasGradArgs& args) {
    return FloatScratchBytes(args.cols);
}

void ExpertBiasGrad(const Kernels& kernels, const ExpertBiasGradArgs& args, int part, int parts) {
    float* const dy = ScratchFloats(args, part);
    const Range share = Share(args.cols, 16, part, parts);
    const int64_t count = share.end - share.begin;
    if (count == 0) return;
    for (int64_t e = 0; e < args.experts; ++e) {
        float* const db = args.db + e * args.cols + share.begin;
        for (int64_t i = args.plan.begin[e]; i < args.plan.begin[e + 1]; ++i) {
            const int64_t slot = args.plan.slots[i];
            const bool weighs = args.weights != nullptr;
            const ConstMatrix row = args.dy.From(weighs ? slot / args.used : i, share.begin);
            CopyRow(kernels, row, 0, {dy, count}, 0, count, weighs ? args.weights[slot] : 1.0f);
            for (int64_t c = 0; c < count; ++c) db[c] += dy[c];
        }
    }
}

void ExpertBiasSum(const ExpertBiasSumArgs& args, int part, int parts) {
    const Range share = Share(args.tokens, 1, part, parts);
    for (int64_t token = share.begin; token < share.end; ++token) {
        float* const y = args.y + token * args.cols;
        if (y != args.base + token * args.cols) {
            std::copy_n(args.base + token * args.cols, args.cols, y);
        }
        for (int64_t slot = token * args.used; slot < (token + 1) * args.used; ++slot) {
            const int64_t e = args.ids[slot] - args.first_expert;
            if (e < 0 || e >= args.experts) continue;
            const float *bias = args.bias + e * args.cols, weight = args.weights[slot];
            for (int64_t c = 0; c < args.cols; ++c) y[c] += weight * bias[c];
        }
    }
}

void ExpertBiasSumGrad(const ExpertBiasSumGradArgs& args, int part, int parts) {
    const Range share = Share(args.tokens * args.used, 1, part, parts);
    for (int64_t slot = share.begin; slot < share.end; ++slot) {
        const int64_t e = args.ids[slot] - args.first_expert;
        const bool held = e >= 0 && e < args.experts;
        const float* dy = args.dy + slot / args.used * args.cols;
        args.dweights[slot] = held ? DotInLanes(dy, args.bias + e * args.cols, args.cols) : 0;
    }
}

int64_t WeighRowsGradScratchBytes(const WeighRowsGradArgs& args) {
    return 3 * FloatScratchBytes(args.cols);
}

void WeighRowsGrad(const Kernels& kernels, const WeighRowsGradArgs& args, int part, int parts) {
    const int64_t cols = args.cols;
    float* const x = ScratchFloats(args, part);
    float* const dy = x + FloatScratchBytes(cols) / 4;
    float* const dx = dy + FloatScratchBytes(cols) / 4;
    const Range share = Share(args.tokens, 1, part, parts);
    for (int64_t token = share.begin; token < share.end; ++token) {
        CopyRow(kernels, args.x, token, {x, cols}, 0, cols);
        std::fill_n(dx, cols, 0.0f);
        for (int64_t slot = token * args.used; slot < (token + 1) * args.used; ++slot) {
            args.dweights[slot] = 0;
            if (args.plan.place[slot] < 0) continue;
            CopyRow(kernels, args.dy, args.plan.place[slot], {dy, cols}, 0, cols);
            args.dweights[slot] = DotInLanes(dy, x, cols);
            for (int64_t c = 0; c < cols; ++c) dx[c] += args.weights[slot] * dy[c];
        }
        CopyRow(kernels, {dx, cols}, 0, args.dx, token, cols);
    }
}

void Ones(const OnesArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    std::fill(args.y + share.begin * args.cols, args.y + share.end * args.cols, 1.0f);
}

// ---- Routers -----------------------------------------------------------------------------------

// The divisor of a row's weights, as in the forward pass (kernels/route.cc).
double RouteDivisor(const RouteGradArgs& args, double sum) {
    return args.renormalise ? sum + double{1e-20f} : 1.0;
}

void RouteFactorsGrad(const RouteGradArgs& args, int part, int) {
    if (part != 0) return;
    WEFT_CHECK(args.experts <= kMostExperts);
    for (int64_t row = 0; row < args.rows; ++row) {
        const float* const dweights = args.dweights + row * args.used;
        const int32_t* const ids = args.ids + row * args.used;
        float scores[kMostExperts];
        Scores(args.logits + row * args.experts, args.experts, args.sigmoid, scores);
        double sum = 0;
        for (int64_t k = 0; k < args.used; ++k) sum += double{scores[ids[k]]};
        const double factor = double{args.scale} / RouteDivisor(args, sum);
        for (int64_t k = 0; k < args.used; ++k) {
            args.dfactors[ids[k]] +=
                static_cast<float>(factor * double{scores[ids[k]]} * double{dweights[k]});
        }
    }
}

void RouteGrad(const RouteGradArgs& args, int part, int parts) {
    const int64_t experts = args.experts, used = args.used;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float* const dweights = args.dweights + row * used;
        const int32_t* const ids = args.ids + row * used;
        float* const d = args.dlogits + row * experts;
        Scores(args.logits + row * experts, experts, args.sigmoid, d);
        float chosen[kMostExperts];
        const auto dweight = [&](int64_t k) {
            const float factor = args.factors == nullptr ? 1.0f : args.factors[ids[k]];
            return double{dweights[k]} * double{factor};
        };
        double sum = 0, dot = 0, across = 0;
        for (int64_t k = 0; k < used; ++k) {
            chosen[k] = d[ids[k]];
            sum += double{chosen[k]};
            dot += double{chosen[k]} * dweight(k);
        }
        const double inverse = 1 / RouteDivisor(args, sum);
        const double mean = args.renormalise ? dot * inverse : 0.0;
        const auto dscore = [&](int64_t k) {
            return double{args.scale} * (dweight(k) - mean) * inverse;
        };
        for (int64_t k = 0; k < used && !args.sigmoid; ++k) {
            across += double{chosen[k]} * dscore(k);
        }
        for (int64_t e = 0; e < experts; ++e) {
            d[e] = args.sigmoid ? 0.0f : static_cast<float>(-double{d[e]} * across);
        }
        for (int64_t k = 0; k < used; ++k) {
            const double slope =
                args.sigmoid ? double{chosen[k]} * (1 - double{chosen[k]}) : double{chosen[k]};
            d[ids[k]] += static_cast<float>(slope * dscore(k));
        }
    }
}

void GateRows(const Kernels& kernels, const GateRowsArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float gate = args.gate[row];
        const float factor = args.product ? gate : args.softplus ? Softplus(gate) : Sigmoid(gate);
        CopyRow(kernels, args.x, row, args.y, row, args.cols, factor);
    }
}

int64_t GateRowsGradScratchBytes(const GateRowsGradArgs& args) {
    return 2 * FloatScratchBytes(args.cols);
}

void GateRowsGrad(const Kernels& kernels, const GateRowsGradArgs& args, int part, int parts) {
    float* const dy = ScratchFloats(args, part);
    float* const x = dy + FloatScratchBytes(args.cols) / 4;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float open = Sigmoid(args.gate[row]);
        CopyRow(kernels, args.dy, row, {dy, args.cols}, 0, args.cols);
        CopyRow(kernels, args.x, row, {x, args.cols}, 0, args.cols);
        const float slope = args.product ? 1 : args.softplus ? open : open * (1 - open);
        args.dgate[row] = DotInLanes(dy, x, args.cols) * slope;
        const float factor = args.product    ? args.gate[row]
                             : args.softplus ? Softplus(args.gate[row])
                                             : open;
        CopyRow(kernels, {dy, args.cols}, 0, args.dx, row, args.cols, factor);
    }
}

void RouterScores(const RouterScoresArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const int64_t at = row * args.experts;
        Scores(args.logits + at, args.experts, false, args.scores + at);
    }
}

void RouterLoad(const RouterLoadArgs& args, int part, int parts) {
    WEFT_CHECK(args.experts <= kMostExperts);
    const Range share = Share(args.experts, 8, part, parts);
    double counts[kMostExperts] = {}, sums[kMostExperts] = {};  // of this part's experts
    for (int64_t row = 0; row < args.rows; ++row) {
        const float* const scores = args.scores + row * args.experts;
        for (int64_t e = share.begin; e < share.end; ++e) sums[e] += double{scores[e]};
    }
    for (int64_t slot = 0; slot < args.rows * args.used; ++slot) {
        const int64_t e = args.ids[slot];
        if (e >= share.begin && e < share.end) ++counts[e];
    }
    const float* const before = args.before;
    for (int64_t e = share.begin; e < share.end; ++e) {
        if (before != nullptr) counts[e] += double{before[e]};
        if (before != nullptr) sums[e] += double{before[args.experts + e]};
        args.load[e] = static_cast<float>(counts[e]);
        args.load[args.experts + e] = static_cast<float>(sums[e]);
    }
}

void RouterLoadGrad(const RouterLoadGradArgs& args, int part, int parts) {
    const float* const dsums = args.dload + args.experts;
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        float* const d = args.dlogits + row * args.experts;
        Scores(args.logits + row * args.experts, args.experts, false, d);
        double across = 0;
        for (int64_t e = 0; e < args.experts; ++e) across += double{d[e]} * double{dsums[e]};
        for (int64_t e = 0; e < args.experts; ++e) {
            d[e] = static_cast<float>(double{d[e]} * (double{dsums[e]} - across));
        }
    }
}

void LoadBalance(const LoadBalanceArgs& args, int part, int) {
    if (part != 0) return;
    const float* const sums = args.load + args.experts;
    double sum = 0;
    for (int64_t e = 0; e < args.experts; ++e) sum += double{args.load[e]} * double{sums[e]};
    const double balance = BalanceFactor(args.load, args.experts, args.used) * sum;
    if (args.wide != nullptr) *args.wide = balance;
    *args.y = static_cast<float>(balance);
}

void LoadBalanceGrad(const LoadBalanceGradArgs& args, int part, int) {
    if (part != 0) return;
    const double factor = double{*args.dy} * BalanceFactor(args.load, args.experts, args.used);
    std::fill_n(args.dload, args.experts, 0.0f);
    for (int64_t e = 0; e < args.experts; ++e) {
        args.dload[args.experts + e] = static_cast<float>(factor * double{args.load[e]});
    }
}

}  // namespace weft::kernels::dense
