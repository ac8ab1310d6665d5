// Weight matrices with AMX: the same strips and prepared activations as avx512/, multiplied as
// tiles of 16 tokens by 16 rows. Contracts: kernels/kernels.h.
//
// Quantized weights: dots of 32 columns are integers, and floats are added in the order of avx512/,
// so that the bits are those of the other levels; few tokens, which wait for memory, are left to
// avx512/. BF16 weights have the sums of the tile instruction, for one token as for many.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::amx {

void MatMul(const MatMulArgs& args, int part, int parts);

}  // namespace weft::kernels::amx
