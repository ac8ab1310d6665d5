// The dense products and attention for AMX: bfloat16 by tiles, float32 as AVX-512 does it (compiled
// once, there).
#pragma once

#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"

namespace weft::kernels::amx {

extern const dense::GemmKernels kGemm;
extern const dense::CausalKernels kCausal;

}  // namespace weft::kernels::amx
