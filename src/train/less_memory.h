// Suggests flags that reduce the memory of a training job.
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

// Single changes, those with the least effect on training first. replicas: number of replicas, over
// which ZeRO shards.
std::vector<Change> ChangesOf(const TrainerOptions& options, int64_t replicas);
// The same changes applied cumulatively: each entry includes the entries before it.
std::vector<Change> ChangesTogether(const TrainerOptions& options, int64_t replicas);

// Advice for a job that does not fit into memory: the single changes with which it fits or, if
// there are none, the first entry of ChangesTogether with which it fits. fits: whether a job with
// these options fits; called for the same options in the same order on all ranks.
using FitsWith = std::function<bool(const TrainerOptions& options)>;
std::string AdviseLessMemory(const TrainerOptions& options, int64_t replicas, const FitsWith& fits);

}  // namespace weft::train
