#include "kernels/reference/backward.h"

#include <algorithm>

namespace weft::kernels::reference {
namespace {

void AddScaled(const float* x, float scale, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
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

}  // namespace weft::kernels::reference
