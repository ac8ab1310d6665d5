// Scalar definitions of backward ops that are not in the table of kernels (elements.h has those
// that are). Matrices, including weights, are float32 and row-major. Strides, (part, parts) and row
// independence are as in kernels/args.h. Gradients of activations are assigned; gradients of
// parameters are added (`+=`). Outputs must not overlap inputs.
#pragma once

#include "kernels/args.h"

namespace weft::kernels::reference {

// dx [rows, k] = dy [rows, n] . weight [n, k]. Parts divide the rows.
struct MatMulGradInputArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const float* weight = nullptr;
    int64_t rows = 0, n = 0, k = 0;
    float* dx = nullptr;
    int64_t dx_stride = 0;
};
void MatMulGradInput(const MatMulGradInputArgs& args, int part, int parts);

// dw [n, k] += dy [rows, n]^T . x [rows, k]. Parts divide n.
struct MatMulGradWeightArgs {
    const float* dy = nullptr;
    const float* x = nullptr;
    int64_t dy_stride = 0, x_stride = 0;
    int64_t rows = 0, n = 0, k = 0;
    float* dw = nullptr;
};
void MatMulGradWeight(const MatMulGradWeightArgs& args, int part, int parts);

// Row `tokens[i] - first_row` of dtable [table_rows, cols] += row i of dy. Tokens outside the table
// add nothing. Parts divide the columns.
struct EmbeddingGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const int32_t* tokens = nullptr;
    int64_t count = 0, first_row = 0, table_rows = 0, cols = 0;
    float* dtable = nullptr;
};
void EmbeddingGrad(const EmbeddingGradArgs& args, int part, int parts);

// Sets dx [rows, cols] to zeros, then adds row i of dy [count, cols] to row `selected[i]` of dx.
// Parts divide the columns.
struct SelectRowsGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const int32_t* selected = nullptr;
    int64_t count = 0, rows = 0, cols = 0;
    float* dx = nullptr;
    int64_t dx_stride = 0;
};
void SelectRowsGrad(const SelectRowsGradArgs& args, int part, int parts);

}  // namespace weft::kernels::reference
