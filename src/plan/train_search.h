// The search over layouts of a training job: what fits, fastest first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/train_predict.h"

namespace weft::plan {

// What is said is so; the rest is searched.
struct TrainWishes {
    // 0: searched (dp: ranks / tp / pp).
    int tp = 0, pp = 0, dp = 0, ep = 0, virtual_stages = 0;
    int zero = -1;                          // -1: searched
    std::optional<bool> sequence_parallel;  // none: searched where tp is
    std::optional<program::Recompute> recompute;
    // 0: searched; without a global batch, powers of two and the most that fits.
    int64_t micro_batch = 0;
    int64_t accumulation = 0;  // 0: what the batch asks for, else 1, or four times the stages
    int64_t global_batch = 0;  // sequences of an update; 0: micro-batch x accumulation x replicas
    double fill = 0.9;         // of a device's memory: what a micro-batch that is searched may take
    TrainRisks risks;
};

struct TrainPlans {
    std::vector<TrainPrediction> layouts;  // that fit first, by tokens_per_s; kMostKept at most
    std::vector<std::string> refused;      // what can't be, and why; once for each reason
    int64_t bounded = 0, predicted = 0;    // cuts, for tests of how long a search takes
};
inline constexpr size_t kMostKept = 24;

// Cuts are bounded first, and walked in the order of their bounds for as long as those could still
// be among the first. Errors: kUsage (wishes that contradict each other, or no cut is left),
// kUnsupported (a model that can't be cut so).
Result<TrainPlans> SearchTraining(TrainWalk& walk, const TrainLinks& links,
                                  const TrainWishes& wishes);

// The same of unlike hosts, of each kind alone and of all without the slowest (PartsOf); of alike
// ones with half of them, a quarter, ... for as long as that is faster: a slow wire may be left
// out. Errors: those of all hosts, where no part can do it either.
Result<TrainPlans> SearchTrainingOn(TrainWalk& walk, const ClusterSpec& cluster,
                                    const TrainWishes& wishes);

}  // namespace weft::plan
