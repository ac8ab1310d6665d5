// The kernels of kernels/sparse.h for a set.
#pragma once

#include "kernels/sparse.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

// latent.cc, beside latent attention to all positions.
void SparseLatent(const SparseLatentArgs& args, int part, int parts);
// attention.cc, likewise.
void BlockAttention(const BlockAttentionArgs& args, int part, int parts);
void AttendWindows(const WindowAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::WEFT_SET
