// Reference kernel of attention to chosen blocks. (attention.cc has the one of attention to all
// positions.)
#pragma once

#include "kernels/sparse.h"

namespace weft::kernels::reference {

void BlockAttention(const BlockAttentionArgs& args, int part, int parts);

}  // namespace weft::kernels::reference
