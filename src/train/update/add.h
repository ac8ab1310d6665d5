// Adds the ops of the update to a rank's Program: they sum gradients over ranks, compute the
// gradients' norm, run the optimizer, and distribute new weights to the ranks that read them
// (Update in program/model_chunk.h).
#pragma once

#include "program/model_chunk.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

// Whether this rank shares the data, tied and world groups with other ranks.
struct UpdateGroups {
    bool data = false, tied = false, world = false;
    bool float64_sums = true;  // all ranks' devices have float64 sums (program::Target)
};

// The ops that follow Update::end. average: they add the weights to their averages
// (UpdateRule::AveragePart); their step has a rate of 0, a gradient scale of 1, and the number of
// weights in the average, from 1 on. averaged, again: UpdateRule::ViewPart of all parts.
struct OpsAfterUpdate {
    program::OpRange average{}, averaged{}, again{};
};

// Appends the ops after all chunks, and sets the values in state.parts(). Precondition:
// TrainState::Agree has run.
OpsAfterUpdate AddUpdate(program::ChunkedProgram& list, TrainState& state, UpdateRule& rule,
                         const UpdateGroups& groups);

}  // namespace weft::train
