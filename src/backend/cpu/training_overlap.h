// Which communication of a training step runs beside the ops after it: part of training.cc.
//
// Shares are gathered, and gradients summed up over ranks, on a thread of their own, in the order
// of the list. An op waits for those that touch its bytes: found from where values lie, so that
// reuse of the arena is covered by the same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/training_memory.h"
#include "program/program.h"

namespace weft::backend {

// By op: the number, from 1 on, of the last op in the list that runs beside (program/timeline.h)
// and must have ended before this one may begin; 0: none.
std::vector<size_t> PlanWaits(const program::Program& program, const TrainingMemory& memory,
                              int64_t max_tokens, int64_t max_outputs);

}  // namespace weft::backend
