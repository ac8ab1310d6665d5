// What the arithmetic of training is counted by.
#pragma once

#include "train/trainer.h"

namespace weft::train {

// FLOPs of the matrix products by weights, for a position: 2 a weight in the forward pass, 4 in the
// backward pass (2 for weights that LoRA leaves as they are). Attention, and what is computed
// again, does not count; nor do tables that rows are looked up in, and experts that a position did
// not choose.
double FlopsPerToken(const Trainer& trainer);

}  // namespace weft::train
