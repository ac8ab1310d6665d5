// Weight matrices with AVX-512 (VNNI): int8 activations (strips::ActivationBlock) against quantized
// weights, float32 activations against F32 and F16 weights, BF16 ones against BF16 weights, packed
// in strips (kernels/strips.h).
// Contracts: kernels/kernels.h. Each sum is one chain over the blocks of a row in k order.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx512 {

void Prepare(const PrepareArgs& args, int part, int parts);
void MatMul(const MatMulArgs& args, int part, int parts);

}  // namespace weft::kernels::avx512
