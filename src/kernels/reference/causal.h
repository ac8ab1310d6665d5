// The scalar definition of causal attention of training under the names of dense/attention.h: that
// of reference/backward.h, and the log-sums. Needs no scratch; parts share out heads.
#pragma once

#include "kernels/dense/attention.h"

namespace weft::kernels::reference {

int64_t CausalScratchBytes(const dense::CausalArgs& args);
int64_t CausalGradScratchBytes(const dense::CausalGradArgs& args);
void Causal(const dense::CausalArgs& args, std::span<std::byte> scratch, int part, int parts);
void CausalGrad(const dense::CausalGradArgs& args, std::span<std::byte> scratch, int part,
                int parts);

}  // namespace weft::kernels::reference
