// Kernels of training that work head by head: products with each head's matrix, columns of heads,
// and gradients of vectors with one number per head.
// dense/lookup.h explains the calling convention, parts and scratch memory.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::dense {

// Copies columns [x_begin, x_begin + cols) of each head of x to the columns from y_begin on of each
// head of y. clears: the other columns of y become zeros.
struct HeadColumnsArgs {
    ConstMatrix x;  // [rows, heads * x_head], any type
    int64_t rows = 0, heads = 0, x_head = 0, y_head = 0;
    int64_t x_begin = 0, y_begin = 0, cols = 0;
    bool clears = false;
    Matrix y;  // [rows, heads * y_head], any type
};
void HeadColumns(const Kernels& kernels, const HeadColumnsArgs& args, int part, int parts);

// For each head h with its matrix W [n, k] in `w`:
//   kNT  c = a . W^T    a [rows, heads * k], c [rows, heads * n]
//   kNN  c = a . W      a [rows, heads * n], c [rows, heads * k]
//   kTN  W += a^T . b   a [rows, heads * n], b [rows, heads * k]
enum class HeadProduct : uint8_t { kNT, kNN, kTN };
struct HeadGemmArgs {
    HeadProduct product = HeadProduct::kNT;
    Compute compute = Compute::kF32;
    int64_t heads = 0, n = 0, k = 0, rows = 0;
    ConstMatrix a, b;  // b: kTN
    ConstMatrix w;     // kNT, kNN: [heads * n, k]
    Matrix c;          // kNT, kNN
    Matrix dw;         // kTN: [heads * n, k]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
// Needs the largest number of rows in args.rows.
int64_t HeadGemmScratchBytes(const Kernels& kernels, const HeadGemmArgs& args);
void HeadGemm(const Kernels& kernels, const HeadGemmArgs& args, int part, int parts);

// dsinks[row, h] = -exp(sinks[h] - lse[h, row]) * (dout . out of the head): the row's addend to the
// gradient of a sink of attention. The arguments are those of the backward pass (attention.h).
struct SinksGradArgs {
    ConstMatrix dout, out;  // [rows, heads * head_dim], any types
    const float* lse = nullptr;
    int64_t lse_stride = 0;
    const float* sinks = nullptr;  // [heads]
    int64_t rows = 0, heads = 0, head_dim = 0;
    float* dsinks = nullptr;  // [rows, heads]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t SinksGradScratchBytes(const SinksGradArgs& args);
void SinksGrad(const Kernels& kernels, const SinksGradArgs& args, int part, int parts);

// With s = dy . x of each head: doffset = s, dslope = s * log(position + 1).
struct ScaleHeadsGradArgs {
    ConstMatrix dy, x;  // [rows, cols], any types
    const int32_t* positions = nullptr;
    int64_t rows = 0, cols = 0, heads = 0;
    float* dslope = nullptr;   // [rows, heads]
    float* doffset = nullptr;  // [rows, heads]
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t ScaleHeadsGradScratchBytes(const ScaleHeadsGradArgs& args);
void ScaleHeadsGrad(const Kernels& kernels, const ScaleHeadsGradArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
