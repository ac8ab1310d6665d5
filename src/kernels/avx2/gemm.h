// Products of float matrices for AVX2 and FMA; bfloat16 as rounded floats. dense/gemm.h is the
// contract.
#pragma once

#include "kernels/dense/gemm.h"

namespace weft::kernels::avx2 {

int64_t GemmScratchBytes(const dense::GemmArgs& args);
void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts);

}  // namespace weft::kernels::avx2
