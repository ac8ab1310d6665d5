// Recomputation (activation checkpointing, Chen et al. 2016): the backward pass computes values of
// the forward pass again instead of keeping them.
//
//   kNone       every value that the backward pass reads is kept
//   kSelective  outputs of norms and gated units are computed again from their inputs. This costs
//               little arithmetic and saves a third of the activations. (Attention scores are never
//               kept.)
//   kFull       only the residual stream is kept: outputs of embeddings, all-reduces, additions and
//               other stages. All else is computed again, which costs nearly a second forward pass
//
// No collective runs twice except gather_rows, whose operand is only a share of its output. No
// choice of experts is repeated.
#pragma once

#include <vector>

#include "program/differentiate.h"

namespace weft::program {

enum class Recompute { kNone, kSelective, kFull };

// Backward ops that read a dropped value read a new value instead, which copies of forward ops
// write just before the first such op. The result passes CheckShapes.
// branches: values that additions write beside the residual stream (LoRA's); kFull drops them.
Differentiated WithRecompute(Differentiated differentiated, Recompute what,
                             const std::vector<ValueId>& branches = {});

}  // namespace weft::program
