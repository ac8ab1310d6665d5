// Recompute (activation checkpointing, Chen et al. 2016): values of the forward pass that the
// backward pass computes again instead of keeping them.
//
//   kNone       every value that the backward pass reads is kept
//   kSelective  what norms and gated units write is computed again from what they read: little
//               arithmetic for a third of the memory. (Scores of attention are never kept.)
//   kFull       only the residual stream is kept: what embeddings, sums over ranks, additions and
//               other stages write; all between is computed again, a second forward pass nearly
//
// No collective runs twice but for gather_rows, whose operand is a share of the memory; no choice
// of experts is made twice.
#pragma once

#include <vector>

#include "program/differentiate.h"

namespace weft::program {

enum class Recompute { kNone, kSelective, kFull };

// Each backward op that reads a dropped value reads a new one, which copies of forward ops write
// just before the first such op. The result passes CheckShapes.
// branches: values that additions write beside the residual stream (LoRA's), which kFull drops.
Differentiated WithRecompute(Differentiated differentiated, Recompute what,
                             const std::vector<ValueId>& branches = {});

}  // namespace weft::program
