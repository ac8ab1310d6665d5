// Searches layouts of a training job that fit, fastest first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_predict.h"

namespace weft::plan {

// Values that are set are kept; the others are searched.
struct TrainWishes {
    // 0: searched (dp: ranks / tp / pp).
    int tp = 0, pp = 0, dp = 0, ep = 0, virtual_stages = 0;
    int zero = -1;                          // -1: searched
    std::optional<bool> sequence_parallel;  // nullopt: searched if tp is
    std::optional<program::Recompute> recompute;
    // 0: searched: with no global batch, powers of two and the largest that fits.
    int64_t micro_batch = 0;
    int64_t accumulation = 0;  // 0: from the batch, else 1, or four times the stages
    int64_t global_batch = 0;  // sequences of an update; 0: micro-batch x accumulation x replicas
    double fill = 0.9;         // most of a device's memory that a searched micro-batch may take
};

struct TrainPlans {
    std::vector<TrainPrediction> layouts;  // fitting first, then by tokens_per_s; at most kMostKept
    std::vector<std::string> refused;      // impossible layouts, one per reason
    int64_t bounded = 0, predicted = 0;    // numbers of cuts; tests measure the cost by them
};
inline constexpr size_t kMostKept = 24;

// Bounds all cuts first, then predicts them in the order of their bounds while they could still be
// among the best. Errors: kUsage (contradictory wishes, or no cut is left), kUnsupported (the model
// can't be sharded this way).
Result<TrainPlans> SearchTraining(TrainWalk& walk, const TrainLinks& links,
                                  const TrainWishes& wishes);

// As SearchTraining, also on parts of the cluster. Unlike hosts: each kind alone and all without
// the slowest (PartsOf). Like hosts: half of them, a quarter, ... while that is faster, because
// leaving out a slow wire may help. Errors: those for all hosts, if no part can do it either.
Result<TrainPlans> SearchTrainingOn(TrainWalk& walk, const ClusterSpec& cluster,
                                    const TrainWishes& wishes);

}  // namespace weft::plan
