// Products of matrices for training: y = x . W^T, dx = dy . W and dW += dy^T . x are all
// C [m, n] = A [m, k] . B [k, n] with strides. Packed, cache-blocked, one thread a part (the scheme
// of Goto and van de Geijn 2008, and of BLIS, Van Zee and van de Geijn 2015). The functions stand
// in the table of kernels/kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dense/element.h"

namespace weft::kernels::dense {

// kBf16: operands are rounded to bfloat16 (nearest even; denormals may count as zeros), products
// are summed in float32. kF32: operands are widened; so float16 ones are multiplied as they are.
enum class Compute { kF32, kBf16 };

// Strides are in elements, any number (also 0 and negative): element (i, j) is
// data[i * row + j * col]. Fast where one of the two strides is 1.
struct GemmOperand {
    const void* data = nullptr;
    int64_t row = 0, col = 0;
    Element type = Element::kF32;
};

// C overlaps neither operand. Where C is no float32, a sum over the whole of k is made in float32,
// added to the old element once, and rounded once.
struct GemmArgs {
    GemmOperand a, b;
    Matrix c;  // [m, n]
    int64_t m = 0, n = 0, k = 0;
    bool accumulate = false;  // C += A . B, else C = A . B
    Compute compute = Compute::kF32;
};

struct GemmKernels {
    // Of scratch that one part needs, however many parts there are; some L2 caches at most, so that
    // one scratch does for all products of a program (take the largest).
    int64_t (*gemm_scratch_bytes)(const GemmArgs& args) = nullptr;
    // Parts share out C in a grid and never write the same bytes; no part waits for another. Any
    // element of C is summed over k in one order, whatever m, n and parts are.
    void (*gemm)(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts) = nullptr;
};

}  // namespace weft::kernels::dense
