// The kernel table of AMX: AVX-512's, with tiles for products of quantized and BF16 weights and for
// dense bfloat16 products. Files of this folder are compiled like AVX-512's (vector/set.h), and use
// its vectors, packing and loops.
//
// Quantized weights: dot products of 32 columns are integers, and floats are added in the order of
// avx512/, so that all levels give the same bits. Products of few tokens, which are bound by
// memory, use avx512/. BF16 weights use the tile instruction's order of sums for any number of
// tokens.
#pragma once

#include "kernels/vector/set.h"

namespace weft::kernels::amx {

Kernels Table();
void SetGemm(Kernels& table);
void SetCausal(Kernels& table);
void MatMul(const MatMulArgs& args, int part, int parts);

}  // namespace weft::kernels::amx
