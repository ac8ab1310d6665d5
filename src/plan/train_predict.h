// Predicts how one layout of a training job runs on a cluster: seconds of an update, memory of each
// stage.
//
// The time of a rank's forward and backward pass is added up op by op (plan/train_walk.h). ZeRO's
// transfers overlap with these ops layer by layer, as in the trainer. These times give the time of
// the pipeline's schedule (plan/train_schedule.h). Gradient sums and the optimizer follow. An
// update takes as long as its slowest stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_links.h"
#include "plan/train_walk.h"

namespace weft::plan {

// The layout and batch of a training job. Ranks are numbered as in train/parallel/layout.h.
struct TrainCut {
    int tp = 1, pp = 1, cp = 1, dp = 1;
    int ep = 0;  // expert groups of the tensor ranks; 0: as many as the model needs
    int zero = 0;
    int virtual_stages = 1;
    bool sequence_parallel = false;
    program::Recompute recompute = program::Recompute::kNone;
    int64_t micro_batch = 1;
    int64_t accumulation = 1;
    int replicas() const { return cp * dp; }  // that sum up gradients
    int ranks() const { return tp * pp * replicas(); }
    int64_t sequences() const { return micro_batch * accumulation * dp; }
    std::string Name() const;  // "tp8 pp4 dp2 zero1"
};
const char* RecomputeName(program::Recompute recompute);

struct StageMemory {
    int first_rank = 0;
    double state = 0;  // weights, gradients, optimizer state
    // Activations, scratch memory, and units that ZeRO gathers for a time.
    double work = 0;
    double process = 0;  // host memory of the process, if the device uses host memory, too
    double total() const { return state + work + process; }
};

// A layout that uses more than this share of a device's memory may fail in a long run.
inline constexpr double kRoomyFill = 0.95;

struct TrainPrediction {
    TrainCut cut;
    TrainSeconds parts;               // of the slowest stage; parts.total() is update_s
    double update_s = 0, spread = 0;  // spread: relative standard deviation of tokens_per_s
    double tokens_per_s = 0;
    double flops = 0;  // of an update on all ranks: 3 x the forward passes' FLOPs
    double share_of_peak = 0;
    std::vector<StageMemory> memory;
    double room = 0;  // bytes of memory of each rank's device
    int hosts = 1;
    std::vector<int> used;  // indices of hosts of the cluster; empty: the first `hosts`
    const StageMemory& worst() const;
    bool fits(double fill = 1) const { return worst().total() <= fill * room; }
    // Whether the layout leaves memory for the allocator's fragments and the driver (kRoomyFill).
    bool is_roomy() const { return fits(kRoomyFill); }
    // Whether this layout is roomy and the other is not; if both are alike: whether it fits and the
    // other does not; if both fit: whether it is faster; if neither fits: whether it needs less
    // memory.
    bool IsBetterThan(const TrainPrediction& other) const;
    // Seconds of training on this many sequences; the number of updates is rounded up.
    double SecondsOf(int64_t sequences) const;
};

// Predicts a cut. Errors: kUsage (impossible with these ranks, sequences or layers), and those of
// TrainWalk::PartsOf.
Result<TrainPrediction> PredictTraining(TrainWalk& walk, const TrainLinks& links,
                                        const TrainCut& cut);

// Predicts less, in less time: sets only cut, memory, room, a lower bound in update_s, and an upper
// bound in tokens_per_s. The bounds ignore the pipeline's schedule, gradient sums and stragglers.
Result<TrainPrediction> BoundTraining(TrainWalk& walk, const TrainLinks& links,
                                      const TrainCut& cut);

}  // namespace weft::plan
