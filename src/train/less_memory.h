// Flags with which the same training takes less memory.
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

// Changes of one kind each, those first that change the result least. replicas: of the layout, as
// ZeRO shares out among them.
std::vector<Change> ChangesOf(const TrainerOptions& options, int64_t replicas);
// All of them one after the other, each on top of those before.
std::vector<Change> ChangesTogether(const TrainerOptions& options, int64_t replicas);

// What to tell whose training does not fit: the changes that `fits` finds enough by themselves, or
// the fewest of ChangesTogether. `fits` is called with changes in the same order on all ranks.
using FitsWith = std::function<bool(const TrainerOptions& options)>;
std::string AdviseLessMemory(const TrainerOptions& options, int64_t replicas, const FitsWith& fits);

}  // namespace weft::train
