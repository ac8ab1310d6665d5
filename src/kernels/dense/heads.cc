#include "kernels/dense/heads.h"

#include <cmath>

#include "kernels/dense/row_copy.h"

namespace weft::kernels::dense {
namespace {

// The dot products of the heads of a row of a and b, through `scratch` [2, cols].
template <typename OnHead>
void HeadDots(const Kernels& kernels, const ConstMatrix& a, const ConstMatrix& b, int64_t row,
              int64_t heads, int64_t dims, float* scratch, const OnHead& on_head) {
    const int64_t cols = heads * dims;
    float* const second = scratch + FloatScratchBytes(cols) / 4;
    CopyRow(kernels, a, row, {scratch, cols}, 0, cols);
    CopyRow(kernels, b, row, {second, cols}, 0, cols);
    for (int64_t head = 0; head < heads; ++head) {
        on_head(head, DotInLanes(scratch + head * dims, second + head * dims, dims));
    }
}

GemmArgs ProductOf(const HeadGemmArgs& args, int64_t head) {
    const auto rows = [](const ConstMatrix& m) { return GemmOperand{m.data, m.stride, 1, m.type}; };
    const auto columns = [](const ConstMatrix& m) {
        return GemmOperand{m.data, 1, m.stride, m.type};
    };
    GemmArgs g;
    g.compute = args.compute;
    if (args.product == HeadProduct::kTN) {
        g.a = columns(args.a.From(0, head * args.n));
        g.b = rows(args.b.From(0, head * args.k));
        g.c = args.dw.From(head * args.n, 0);
        g.m = args.n, g.n = args.k, g.k = args.rows;
        g.accumulate = true;
        return g;
    }
    const bool transposed = args.product == HeadProduct::kNT;
    const int64_t in = transposed ? args.k : args.n, out = transposed ? args.n : args.k;
    const ConstMatrix w = args.w.From(head * args.n, 0);
    g.a = rows(args.a.From(0, head * in));
    g.b = transposed ? columns(w) : rows(w);
    g.c = args.c.From(0, head * out);
    g.m = args.rows, g.n = out, g.k = in;
    return g;
}

}  // namespace

void HeadColumns(const Kernels& kernels, const HeadColumnsArgs& args, int part, int parts) {
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        if (args.clears) ClearRow(args.y, row, 0, args.heads * args.y_head);
        for (int64_t head = 0; head < args.heads; ++head) {
            CopyRow(kernels, args.x.From(row, head * args.x_head + args.x_begin), 0,
                    args.y.From(row, head * args.y_head + args.y_begin), 0, args.cols);
        }
    }
}

int64_t HeadGemmScratchBytes(const Kernels& kernels, const HeadGemmArgs& args) {
    return (kernels.gemm_scratch_bytes(ProductOf(args, 0)) + 63) / 64 * 64;
}

void HeadGemm(const Kernels& kernels, const HeadGemmArgs& args, int part, int parts) {
    const std::span<std::byte> scratch(args.scratch + part * args.scratch_bytes,
                                       static_cast<size_t>(args.scratch_bytes));
    const Range share = Share(args.heads, 1, part, parts);
    for (int64_t head = share.begin; head < share.end; ++head) {
        kernels.gemm(ProductOf(args, head), scratch, 0, 1);
    }
}

int64_t SinksGradScratchBytes(const SinksGradArgs& args) {
    return 2 * FloatScratchBytes(args.heads * args.head_dim);
}

void SinksGrad(const Kernels& kernels, const SinksGradArgs& args, int part, int parts) {
    float* const scratch = ScratchFloats(args, part);
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const auto add = [&](int64_t head, float dot) {
            const float lse = args.lse[head * args.lse_stride + row];
            args.dsinks[row * args.heads + head] = -std::exp(args.sinks[head] - lse) * dot;
        };
        HeadDots(kernels, args.dout, args.out, row, args.heads, args.head_dim, scratch, add);
    }
}

int64_t ScaleHeadsGradScratchBytes(const ScaleHeadsGradArgs& args) {
    return 2 * FloatScratchBytes(args.cols);
}

void ScaleHeadsGrad(const Kernels& kernels, const ScaleHeadsGradArgs& args, int part, int parts) {
    float* const scratch = ScratchFloats(args, part);
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        const float log = std::log(static_cast<float>(args.positions[row] + 1));
        const auto add = [&](int64_t head, float dot) {
            args.doffset[row * args.heads + head] = dot;
            args.dslope[row * args.heads + head] = dot * log;
        };
        HeadDots(kernels, args.dy, args.x, row, args.heads, args.cols / args.heads, scratch, add);
    }
}

}  // namespace weft::kernels::dense
