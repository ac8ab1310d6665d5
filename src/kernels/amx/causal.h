// Causal attention of training for AMX: bfloat16 by tiles, float32 as AVX-512 does it.
// dense/attention.h is the contract.
#pragma once

#include "kernels/dense/attention.h"

namespace weft::kernels::amx {

int64_t CausalScratchBytes(const dense::CausalArgs& args);
int64_t CausalGradScratchBytes(const dense::CausalGradArgs& args);
void Causal(const dense::CausalArgs& args, std::span<std::byte> scratch, int part, int parts);
void CausalGrad(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                int parts);

}  // namespace weft::kernels::amx
