#include "kernels/reference/backward.h"

#include <algorithm>
#include <cmath>

namespace weft::kernels::reference {
namespace {

void AddScaled(const float* x, float scale, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

// The largest logit of a row and the sum of exp(logit - largest).
struct SoftmaxTotals {
    float largest = 0;
    float sum = 0;
    float Probability(float logit) const { return std::exp(logit - largest) / sum; }
};

SoftmaxTotals TotalsOf(const float* logits, int64_t count) {
    SoftmaxTotals totals;
    totals.largest = *std::max_element(logits, logits + count);
    for (int64_t i = 0; i < count; ++i) totals.sum += std::exp(logits[i] - totals.largest);
    return totals;
}

}  // namespace

void MatMulGradInput(const MatMulGradInputArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* dx = args.dx + row * args.dx_stride;
        std::fill_n(dx, args.k, 0.0f);
        for (int64_t i = 0; i < args.n; ++i) {
            AddScaled(args.weight + i * args.k, args.dy[row * args.dy_stride + i], args.k, dx);
        }
    }
}

void MatMulGradWeight(const MatMulGradWeightArgs& args, int part, int parts) {
    const Range outs = Share(args.n, 1, part, parts);
    for (int64_t i = outs.begin; i < outs.end; ++i) {
        for (int64_t row = 0; row < args.rows; ++row) {
            AddScaled(args.x + row * args.x_stride, args.dy[row * args.dy_stride + i], args.k,
                      args.dw + i * args.k);
        }
    }
}

void EmbeddingGrad(const EmbeddingGradArgs& args, int part, int parts) {
    const Range columns = Share(args.cols, 1, part, parts);
    for (int64_t i = 0; i < args.count; ++i) {
        const int64_t row = args.tokens[i] - args.first_row;
        if (row < 0 || row >= args.table_rows) continue;
        AddScaled(args.dy + i * args.dy_stride + columns.begin, 1.0f, columns.end - columns.begin,
                  args.dtable + row * args.cols + columns.begin);
    }
}

void SelectRowsGrad(const SelectRowsGradArgs& args, int part, int parts) {
    const Range columns = Share(args.cols, 1, part, parts);
    const int64_t count = columns.end - columns.begin;
    for (int64_t row = 0; row < args.rows; ++row) {
        std::fill_n(args.dx + row * args.dx_stride + columns.begin, count, 0.0f);
    }
    for (int64_t i = 0; i < args.count; ++i) {
        AddScaled(args.dy + i * args.dy_stride + columns.begin, 1.0f, count,
                  args.dx + args.selected[i] * args.dx_stride + columns.begin);
    }
}

float CrossEntropy(const CrossEntropyArgs& args) {
    float loss = 0;
    for (int64_t row = 0; row < args.rows; ++row) {
        if (args.targets[row] < 0) continue;
        const float* logits = args.logits + row * args.logits_stride;
        const SoftmaxTotals totals = TotalsOf(logits, args.cols);
        loss += std::log(totals.sum) + totals.largest - logits[args.targets[row]];
    }
    return loss;
}

void CrossEntropyGrad(const CrossEntropyArgs& args, float dloss, float* dlogits,
                      int64_t dlogits_stride, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* logits = args.logits + row * args.logits_stride;
        float* out = dlogits + row * dlogits_stride;
        std::fill_n(out, args.cols, 0.0f);
        if (args.targets[row] < 0) continue;
        const SoftmaxTotals totals = TotalsOf(logits, args.cols);
        for (int64_t i = 0; i < args.cols; ++i) out[i] = dloss * totals.Probability(logits[i]);
        out[args.targets[row]] -= dloss;
    }
}

}  // namespace weft::kernels::reference
