// Products of float matrices for training: y = x . W^T, dx = dy . W and dW += dy^T . x are all
// C [m, n] = A [m, k] . B [k, n] with strides. Packed, cache-blocked, one thread a part (the scheme
// of Goto and van de Geijn 2008, and of BLIS, Van Zee and van de Geijn 2015). The functions stand
// in the table of dense/dense.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::kernels::dense {

// kBf16: operands are rounded to bfloat16 (nearest even; denormals may count as zeros), products
// are summed in float32.
enum class Compute { kF32, kBf16 };

// Strides are in elements, any number (also 0 and negative): element (i, j) of A is
// a[i * a_row + j * a_col]. Fast where one of an operand's two strides is 1. C overlaps neither
// operand.
struct GemmArgs {
    const float* a = nullptr;
    int64_t a_row = 0, a_col = 0;
    const float* b = nullptr;
    int64_t b_row = 0, b_col = 0;
    float* c = nullptr;  // [m, n], rows c_stride apart
    int64_t c_stride = 0;
    int64_t m = 0, n = 0, k = 0;
    bool accumulate = false;  // C += A . B, else C = A . B
    Compute compute = Compute::kF32;
    // Not null: the operand's elements are bfloat16 and stand here instead of in a or b.
    const uint16_t* a_bf16 = nullptr;
    const uint16_t* b_bf16 = nullptr;
};

// What the functions of each level are:
//   int64_t GemmScratchBytes(const GemmArgs&)
//     of scratch that one part needs, however many parts there are; some L2 cache at most, so that
//     one scratch does for all products of a program (take the largest).
//   void Gemm(const GemmArgs&, std::span<std::byte> scratch, int part, int parts)
//     parts share out C in a grid and never write the same bytes; no part waits for another. Any
//     element of C is summed over k in one order, whatever m, n and parts are.

}  // namespace weft::kernels::dense
