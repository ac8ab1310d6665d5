// Rows of latent attention, over all positions or over chosen ones.
#pragma once

#include "kernels/latent.h"

namespace weft::kernels::reference {

// Computes the heads of one row of the step over its positions [0, keys), or over the first `keys`
// positions in a list.
void LatentRow(const LatentAttentionArgs& args, const Sequence& sequence, int64_t row,
               const Range& heads, int64_t keys, const int32_t* list);

}  // namespace weft::kernels::reference
