// In which order a pipeline stage runs the passes of an update's micro-batches: one forward, one
// backward (1F1B, Narayanan et al. 2019, 2021): a stage runs as many forward passes ahead as there
// are stages behind it, then one backward for each forward.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

struct StagePass {
    bool forward = false;
    int64_t micro_batch = 0;
    int slot = 0;
};

// Micro-batches that a stage has under way at once.
int SlotsOf(int stage, int stages);
std::vector<StagePass> SchedulePasses(int stage, int stages, int64_t micro_batches);

}  // namespace weft::train
