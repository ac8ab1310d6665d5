// The table of AMX: AVX-512's, with tiles for the products of quantized and BF16 weights and the
// dense ones of bfloat16. Files of this folder are compiled as AVX-512's (vector/set.h), of which
// they use vectors, packing and loops.
//
// Quantized weights: dots of 32 columns are integers, and floats are added in the order of avx512/,
// so that the bits are those of the other levels; few tokens, which wait for memory, are left to
// avx512/. BF16 weights have the sums of the tile instruction, for one token as for many.
#pragma once

#include "kernels/vector/set.h"

namespace weft::kernels::amx {

Kernels Table();
void SetGemm(Kernels& table);
void SetCausal(Kernels& table);
void MatMul(const MatMulArgs& args, int part, int parts);

}  // namespace weft::kernels::amx
