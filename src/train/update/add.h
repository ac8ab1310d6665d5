// Adds the update to a rank's Program: gradients summed over ranks, their norm, the ops of the
// optimizer, and the new weights brought to the ranks that read them (program/model_chunk.h,
// Update).
#pragma once

#include "program/model_chunk.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

// Which groups this rank is in with others.
struct UpdateGroups {
    bool data = false, tied = false, world = false;
    bool float64_sums = true;  // of all ranks' devices (program::Target)
};

// Behind all chunks. The state's parts, which are agreed on, get their values.
void AddUpdate(program::ChunkedProgram& list, TrainState& state, UpdateRule& rule,
               const UpdateGroups& groups);

}  // namespace weft::train
