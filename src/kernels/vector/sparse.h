// The kernels of kernels/sparse.h for one instruction set.
#pragma once

#include "kernels/sparse.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// Defined in latent.cc.
void SparseLatent(const SparseLatentArgs& args, int part, int parts);
// Defined in attention.cc.
void BlockAttention(const BlockAttentionArgs& args, int part, int parts);
void AttendWindows(const WindowAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::WEFT_SET
