// Products of float matrices for AMX: bfloat16 by tiles, float32 as AVX-512 does it. dense/gemm.h
// is the contract.
#pragma once

#include "kernels/dense/gemm.h"

namespace weft::kernels::amx {

int64_t GemmScratchBytes(const dense::GemmArgs& args);
void Gemm(const dense::GemmArgs& args, std::span<std::byte> scratch, int part, int parts);

}  // namespace weft::kernels::amx
