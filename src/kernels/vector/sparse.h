// The kernels of kernels/sparse.h for one instruction set.
#pragma once

#include "kernels/sparse.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// In latent.cc.
void SparseLatent(const SparseLatentArgs& args, int part, int parts);
// In attention.cc.
void BlockAttention(const BlockAttentionArgs& args, int part, int parts);
void AttendWindows(const WindowAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::WEFT_SET
