// The gradients of gated units with limits (dense/rows.h, GluArgs). Inside a limit the gradient
// passes; where a limit holds a value, it is zero.
// dense/lookup.h explains the calling convention, parts and scratch memory.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::dense {

struct LimitedGluGradArgs {
    GluGradArgs glu;  // activation: kClampedSilu; or kSilu with a limit
    float limit = 0;
    bool limits_gate = false;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
int64_t LimitedGluGradScratchBytes(const LimitedGluGradArgs& args);
void LimitedGluGrad(const Kernels& kernels, const LimitedGluGradArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
