// The kernel table of AMX: the table of AVX-512, with tiles for products of quantized and BF16
// weights and for dense bfloat16 products. Files of this folder are compiled like those for AVX-512
// (vector/set.h), and use the vectors, packing and loops of AVX-512.
//
// With quantized weights, the dot product of 32 columns is computed in integers, and the float
// results are added in the same order as in avx512/. So all CPU levels (CpuLevel) give the same
// bits. Products of few tokens, whose time is the time of reading the weights, use the kernels of
// avx512/. Products with BF16 weights use tiles for any number of tokens, so their sums always have
// the order of the tile instruction.
#pragma once

#include "kernels/vector/set.h"

namespace weft::kernels::amx {

Kernels Table();
void SetGemm(Kernels& table);
void SetCausal(Kernels& table);
void MatMul(const MatMulArgs& args, int part, int parts);

}  // namespace weft::kernels::amx
