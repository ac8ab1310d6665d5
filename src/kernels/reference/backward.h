// Scalar definitions of the backward ops of program.h that are not in the table (elements.h), and
// of products and losses in their simplest form. Matrices, including weights, are float32 and
// row-major; strides, (part, parts) and row independence are as in kernels/args.h. Gradients of
// activations are assigned; gradients of parameters are added (`+=`). Arguments must not overlap
// outputs.
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

// dtable [table_rows, cols] row `tokens[i] - first_row` += row i of dy; tokens outside the table
// add nothing. Parts divide the columns.
struct EmbeddingGradArgs {
    const float* dy = nullptr;
    int64_t dy_stride = 0;
    const int32_t* tokens = nullptr;
    int64_t count = 0, first_row = 0, table_rows = 0, cols = 0;
    float* dtable = nullptr;
};
void EmbeddingGrad(const EmbeddingGradArgs& args, int part, int parts);

// dx [rows, cols] = zeros, then row `selected[i]` += row i of dy [count, cols]. Parts divide the
// columns.
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
