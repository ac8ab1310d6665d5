// Matrix products for training. y = x . W^T, dx = dy . W and dW += dy^T . x are all computed as C
// [m, n] = A [m, k] . B [k, n], with different strides of A and B. Operands are packed, and
// products are divided into blocks that fit the caches (Goto and van de Geijn 2008; BLIS: Van Zee
// and van de Geijn 2015). A product is divided into parts, each computed by one thread. The
// functions are called through the table in kernels/kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dense/element.h"

namespace weft::kernels::dense {

// kBf16: operands are rounded to bfloat16 (nearest even; denormals may count as zeros), products
// are summed in float32. kF32: operands are widened to float32, so float16 operands are exact.
enum class Compute { kF32, kBf16 };

// Element (i, j) is data[i * row + j * col]. The strides `row` and `col` are in elements and may be
// any numbers, also 0 or negative. Products are fastest if one of the two strides of each operand
// is 1.
struct GemmOperand {
    const void* data = nullptr;
    int64_t row = 0, col = 0;
    Element type = Element::kF32;
};

// C must not overlap the operands. If C is not float32, the sum over all of k is computed in
// float32, added once to the old element (if `accumulate`), and rounded once.
struct GemmArgs {
    GemmOperand a, b;
    Matrix c;  // [m, n]
    int64_t m = 0, n = 0, k = 0;
    bool accumulate = false;  // C += A . B, else C = A . B
    Compute compute = Compute::kF32;
};

struct GemmKernels {
    // Bytes of scratch memory that each part needs, whatever the number of parts: at most a few
    // times the size of the L2 cache. All products of a Program can share one scratch memory of the
    // largest size.
    int64_t (*gemm_scratch_bytes)(const GemmArgs& args) = nullptr;
    // C is divided among the parts in a grid. Parts never write the same bytes and never wait for
    // each other. The sum over k has the same order for each element of C, whatever m, n and parts
    // are.
    void (*gemm)(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts) = nullptr;
};

}  // namespace weft::kernels::dense
