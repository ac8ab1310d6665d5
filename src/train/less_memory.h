// Flags that reduce the memory of a training job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace weft::train {

struct Change {
    std::string flags;  // "--micro-batch 1 --grad-accum 8"
    TrainerOptions options;
};

// Single changes, the least intrusive first. replicas: the replicas of the layout, over which ZeRO
// shards.
std::vector<Change> ChangesOf(const TrainerOptions& options, int64_t replicas);
// The same changes applied cumulatively: each entry includes the entries before it.
std::vector<Change> ChangesTogether(const TrainerOptions& options, int64_t replicas);

// Advice for a job that does not fit: the single changes that suffice (`fits`), or the shortest
// sufficient prefix of ChangesTogether. Calls `fits` for the changes in the same order on all
// ranks.
using FitsWith = std::function<bool(const TrainerOptions& options)>;
std::string AdviseLessMemory(const TrainerOptions& options, int64_t replicas, const FitsWith& fits);

}  // namespace weft::train
