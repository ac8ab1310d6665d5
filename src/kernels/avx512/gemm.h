// Products of float matrices for AVX-512; bfloat16 by vdpbf16ps. dense/gemm.h is the contract.
#pragma once

#include "kernels/dense/gemm.h"

namespace weft::kernels::avx512 {

int64_t GemmScratchBytes(const dense::GemmArgs& args);
void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts);

}  // namespace weft::kernels::avx512
