// The scalar definitions of the row-wise kernels of training. dense/rows.h is the contract.
#pragma once

#include "kernels/dense/rows.h"

namespace weft::kernels::reference {

void NormGradInput(const dense::NormGradArgs& args, int part, int parts);
void NormGradWeight(const dense::NormGradArgs& args, int part, int parts);
void Loss(const dense::LossArgs& args, int part, int parts);
void AdamW(const dense::AdamWArgs& args, int part, int parts);

}  // namespace weft::kernels::reference
