// What one layout of a training job on a cluster would do: seconds of an update, memory by stage.
//
// A rank's passes are timed op by op (plan/train_time.h); what ZeRO moves runs beside them as the
// trainer has it, layer by layer; then the pipeline's schedule is walked (plan/train_schedule.h),
// and behind it come sums of gradients and the optimizer. An update is over when its slowest stage
// is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_links.h"
#include "plan/train_walk.h"

namespace weft::plan {

// How a job is cut. Ranks are numbered as train/parallel/layout.h does.
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

// Ranks are not equally fast, and all wait for the slowest: the largest of n normal values lies
// sqrt(2 ln n) deviations of `jitter` above the mean. Hosts that are lost once in mean_hours each
// cost what was done since the last checkpoint, and a restart (Young 1974).
struct TrainRisks {
    double jitter = 0.01;   // of an update, one standard deviation of a rank
    double mean_hours = 0;  // between losses of one host; 0: none is lost
    double checkpoint_s = 60, restart_s = 600;
};

struct StageMemory {
    int first_rank = 0;
    double state = 0;  // weights, gradients, the optimizer's
    double work = 0;   // activations, and what is whole for a while
    double total() const { return state + work; }
};

struct TrainPrediction {
    TrainCut cut;
    TrainSeconds parts;               // of the slowest stage; adds up to update_s
    double update_s = 0, spread = 0;  // spread: of tokens_per_s, a share, one standard deviation
    double tokens_per_s = 0;
    double kept_share = 1;  // of the time that is not lost with hosts (TrainRisks)
    double flops = 0;       // of an update on all ranks: three times the forward passes'
    double share_of_peak = 0;
    std::vector<StageMemory> memory;
    double room = 0;
    int hosts = 1;
    std::vector<int> used;  // hosts of the cluster; empty: its first ones
    const StageMemory& worst() const;
    bool fits() const { return worst().total() <= room; }
    std::pair<const char*, double> limit() const;
};

// Errors: kUsage (a cut that its ranks, sequences or layers don't allow), those of PartsOf.
Result<TrainPrediction> PredictTraining(TrainWalk& walk, const TrainLinks& links,
                                        const TrainCut& cut, const TrainRisks& risks);

// What a cut takes at least, without a walk of its pipeline and with nobody late, and its memory.
struct TrainBound {
    double update_s = 0;
    double worst = 0;  // bytes of the stage that needs most
};
Result<TrainBound> BoundTraining(TrainWalk& walk, const TrainLinks& links, const TrainCut& cut);

// The most sequences of a pass with which the cut's memory stays within `fill` of the room; 0: not
// one. Errors: those of PredictTraining.
Result<int64_t> MostThatFits(TrainWalk& walk, const TrainLinks& links, TrainCut cut,
                             double fill = 0.9);

}  // namespace weft::plan
