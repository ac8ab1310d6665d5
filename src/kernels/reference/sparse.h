// The reference of attention to chosen blocks, beside that to all positions (attention.cc).
#pragma once

#include "kernels/sparse.h"

namespace weft::kernels::reference {

void BlockAttention(const BlockAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::reference
