// Adds the update to a rank's Program: sums of gradients over ranks, their norm, the optimizer's
// ops, and the distribution of new weights to the ranks that read them (program/model_chunk.h,
// Update).
#pragma once

#include "program/model_chunk.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

// Groups that this rank shares with other ranks.
struct UpdateGroups {
    bool data = false, tied = false, world = false;
    bool float64_sums = true;  // all ranks' devices have float64 sums (program::Target)
};

// Appends the ops after all chunks, and sets the values of the state's parts. Precondition:
// TrainState::Agree.
void AddUpdate(program::ChunkedProgram& list, TrainState& state, UpdateRule& rule,
               const UpdateGroups& groups);

}  // namespace weft::train
