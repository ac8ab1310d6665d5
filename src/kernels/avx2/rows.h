// The row-wise kernels of training for AVX2: the templates of dense/vector_rows.h. dense/rows.h is
// the contract.
#pragma once

#include "kernels/dense/rows.h"

namespace weft::kernels::avx2 {

void NormGradInput(const dense::NormGradArgs& args, int part, int parts);
void NormGradWeight(const dense::NormGradArgs& args, int part, int parts);
void GluGrad(const reference::GluGradArgs& args, int part, int parts);
void Loss(const dense::LossArgs& args, int part, int parts);
void AdamW(const dense::AdamWArgs& args, int part, int parts);

}  // namespace weft::kernels::avx2
