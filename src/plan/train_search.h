// Searches the fastest layouts of a training job that fit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_predict.h"

namespace weft::plan {

// Constraints on the cuts that are searched. A member that is set fixes that property of the cut.
struct TrainSettings {
    // 0: searched; dp is then ranks / tp / pp / cp.
    int tp = 0, pp = 0, dp = 0, ep = 0, virtual_stages = 0;
    int cp = 1;
    int zero = -1;                          // -1: searched
    std::optional<bool> sequence_parallel;  // nullopt: on where it is possible
    std::optional<program::Recompute> recompute;
    // 0: searched; without a global batch, among powers of two and the largest micro-batch that
    // fits.
    int64_t micro_batch = 0;
    // 0: follows from global_batch. Without global_batch, it is 1, or four times the stages of a
    // pipeline.
    int64_t accumulation = 0;
    int64_t global_batch = 0;  // sequences of an update; 0: micro-batch x accumulation x replicas
};

// Share of a device's memory that a searched micro-batch may use.
inline constexpr double kSearchedFill = 0.9;

struct TrainPlans {
    std::vector<TrainPrediction> layouts;  // best first; at most 24
    std::vector<std::string> refused;      // impossible layouts, one per reason
    int64_t bounded = 0, predicted = 0;    // numbers of cuts, for tests of the search's cost
};

// Bounds all cuts (BoundTraining), then predicts them in the order of their bounds. Stops when no
// remaining cut can be among the best. Errors: kUsage (contradictory wishes, or no cut meets them),
// kUnsupported (the model can't be sharded this way).
Result<TrainPlans> SearchTraining(TrainWalk& walk, const TrainLinks& links,
                                  const TrainSettings& wishes);

// Like SearchTraining, but also searches parts of the cluster. If hosts differ, the parts are the
// results of PartsOf (plan/search.h). If hosts are alike, the parts are half of them, a quarter,
// ..., as long as a smaller part is faster, which it can be if the wire is slow. Errors: if no part
// works, those of the search on all hosts.
Result<TrainPlans> SearchTrainingOn(TrainWalk& walk, const ClusterSpec& cluster,
                                    const TrainSettings& wishes);

}  // namespace weft::plan
