// Estimates the floating-point operations of training.
#pragma once

#include "train/trainer.h"

namespace weft::train {

// FLOPs of weight matrix products per position: 2 per weight in the forward pass, 4 in the backward
// pass (2 for weights that LoRA freezes). Does not count attention, recomputation, embedding
// lookups, or experts that a position does not use.
double FlopsPerToken(const Trainer& trainer);

}  // namespace weft::train
