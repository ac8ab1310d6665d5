// Rows of latent attention, of all positions or of chosen ones.
#pragma once

#include "kernels/latent.h"

namespace weft::kernels::reference {

// Heads of a row of the step over its positions [0, keys), or over the `keys` first of a list.
void LatentRow(const LatentAttentionArgs& args, const Sequence& sequence, int64_t row,
               const Range& heads, int64_t keys, const int32_t* list);

}  // namespace weft::kernels::reference
