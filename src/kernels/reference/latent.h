// Rows of latent attention, over all positions or over chosen ones.
#pragma once

#include "kernels/latent.h"

namespace weft::kernels::reference {

// Computes latent attention of some heads for one row of the step, over the row's positions [0,
// keys) or, if `list` is not null, over the positions list[0] to list[keys - 1].
void LatentRow(const LatentAttentionArgs& args, const Sequence& sequence, int64_t row,
               const Range& heads, int64_t keys, const int32_t* list);

}  // namespace weft::kernels::reference
