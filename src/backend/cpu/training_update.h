// What the ops of an update (program/update.h) do on the CPU: part of training.cc.
#pragma once

#include "backend/cpu/training_ops.h"

namespace weft::backend {

// This part's share of the op, which is no transfer. Results do not depend on the number of parts.
void ComputeUpdate(const TrainingCall& call, const TrainingContext& context, const OpTeam& team);

}  // namespace weft::backend
