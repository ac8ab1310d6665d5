// Gradients of norms in forms that dense/rows.h has no gradient of.
//
// LayerNorm (dense/rows.h, RmsNormArgs::centered; Ba et al. 2016): with x' = s *
// (x
// - mean) and g = dy * weight over groups of columns:
//   dx = s * (g - mean(g) - x' * mean(g * x'))
//   dw [group] += the sum over rows and groups of dy * x'        parts divide dw
// dense/lookup.h explains the calling convention, parts and scratch memory.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::dense {

struct LayerNormGradArgs {
    RmsNormGradArgs norm;  // a null weight means ones; `inverse` is not used
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t LayerNormGradScratchBytes(const LayerNormGradArgs& args);
void LayerNormGradInput(const Kernels& kernels, const LayerNormGradArgs& args, int part, int parts);
void LayerNormGradWeight(const Kernels& kernels, const LayerNormGradArgs& args, int part,
                         int parts);

// The gradients of a norm of some columns of rows with `whole` columns (RmsNormArgs::squares), with
// s = 1 / sqrt(squares / whole + eps):
//   dx = s * dy * weight, dsquares[row, square] = -s^3 / (2 whole) * sum(dy * weight * x); the
//   other columns of dsquares are zeros dw += the sum over rows of dy * x * s        parts divide
//   dw
struct WholeNormGradArgs {
    ConstMatrix dy, x;               // [rows, cols], any types
    const float* weight = nullptr;   // [cols]
    const float* squares = nullptr;  // [rows, squares_cols]
    int64_t squares_cols = 0, square = 0, whole = 0;
    float eps = 0;
    int64_t rows = 0, cols = 0;
    Matrix dx;                  // WholeNormGradInput: [rows, cols], any type
    float* dsquares = nullptr;  // [rows, squares_cols]
    float* dw = nullptr;        // WholeNormGradWeight: [cols]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t WholeNormGradScratchBytes(const WholeNormGradArgs& args);
void WholeNormGradInput(const Kernels& kernels, const WholeNormGradArgs& args, int part, int parts);
void WholeNormGradWeight(const Kernels& kernels, const WholeNormGradArgs& args, int part,
                         int parts);

// dx = 2 * x * dy[row, column] in columns [begin, begin + count), zeros elsewhere.
struct SumSquaresGradArgs {
    const float* dy = nullptr;  // [rows, dy_cols]
    int64_t dy_cols = 0, column = 0;
    const float* x = nullptr;  // [rows, cols]
    int64_t rows = 0, cols = 0, begin = 0, count = 0;
    float* dx = nullptr;  // [rows, cols]
};
void SumSquaresGrad(const SumSquaresGradArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
