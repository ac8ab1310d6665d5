// Predicts one layout of a training job on a cluster: seconds of an update, memory by stage.
//
// A rank's passes are timed op by op (plan/train_walk.h). ZeRO's transfers overlap with them as in
// the trainer, layer by layer. Then the pipeline's schedule is walked (plan/train_schedule.h),
// followed by gradient sums and the optimizer. An update takes as long as its slowest stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_links.h"
#include "plan/train_walk.h"

namespace weft::plan {

// A layout and batch. Ranks are numbered as in train/parallel/layout.h.
struct TrainCut {
    int tp = 1, pp = 1, dp = 1;
    int ep = 0;  // expert groups of the tensor ranks; 0: as needed
    int zero = 0;
    int virtual_stages = 1;
    bool sequence_parallel = false;
    program::Recompute recompute = program::Recompute::kNone;
    int64_t micro_batch = 1;
    int64_t accumulation = 1;
    int ranks() const { return tp * pp * dp; }
    int64_t sequences() const { return micro_batch * accumulation * dp; }
    std::string Name() const;  // "tp8 pp4 dp2 zero1"
};
const char* RecomputeName(program::Recompute recompute);

struct StageMemory {
    int first_rank = 0;
    double state = 0;  // weights, gradients, optimizer state
    double work = 0;   // activations, and values that are whole for a time
    double total() const { return state + work; }
};

struct TrainPrediction {
    TrainCut cut;
    TrainSeconds parts;               // of the slowest stage; its sum is update_s
    double update_s = 0, spread = 0;  // spread: standard deviation of tokens_per_s, as a share
    double tokens_per_s = 0;
    double flops = 0;  // of an update on all ranks: three times the forward passes
    double share_of_peak = 0;
    std::vector<StageMemory> memory;
    double room = 0;
    int hosts = 1;
    std::vector<int> used;  // indices of hosts of the cluster; empty: the first `hosts`
    const StageMemory& worst() const;
    bool fits(double fill = 1) const { return worst().total() <= fill * room; }
    std::pair<const char*, double> limit() const;
    // This layout fits and the other does not; or is faster; or needs less memory.
    bool IsBetterThan(const TrainPrediction& other) const;
    // Seconds of the whole updates that these sequences need.
    double SecondsOf(int64_t sequences) const;
};

// Errors: kUsage (the ranks, sequences or layers don't allow the cut); those of PartsOf.
Result<TrainPrediction> PredictTraining(TrainWalk& walk, const TrainLinks& links,
                                        const TrainCut& cut);

// The same with only cut, memory, room, and bounds of update_s (lower) and tokens_per_s (upper):
// without a walk of the pipeline, gradient sums and stragglers.
Result<TrainPrediction> BoundTraining(TrainWalk& walk, const TrainLinks& links,
                                      const TrainCut& cut);

}  // namespace weft::plan
