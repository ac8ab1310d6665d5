// Searches layouts of a training job that fit, fastest first, and machines that train fast enough.
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
};

// Share of a device's memory that a searched micro-batch may take.
inline constexpr double kSearchedFill = 0.9;

struct TrainPlans {
    std::vector<TrainPrediction> layouts;  // best first; at most 24
    std::vector<std::string> refused;      // impossible layouts, one per reason
    int64_t bounded = 0, predicted = 0;    // numbers of cuts; tests measure the cost by them
};

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

struct TrainWanted {
    double within_s = 0;
    int64_t sequences = 0;
    std::optional<double> budget;  // in the unit of prices; at most
};

struct TrainOffer {
    std::string machines;  // in the form of --machines
    TrainPrediction best;
    double seconds = 0;  // for all sequences
    double price = 0;
    bool guessed = false;  // the price of a machine or wire is a guess
};

// Tries 1, 2, 4, ... 64 hosts of all machines with a price, with their own wire. `only` restricts
// the machines and may name a wire. Returns the fewest hosts of each machine that are fast enough,
// cheapest first; if none is, the five fastest offers within the budget, fastest first. Errors:
// kUsage (unknown words, a machine without a price).
Result<std::vector<TrainOffer>> FindTrainingMachines(TrainWalk& walk, const Library& library,
                                                     const TrainWishes& wishes,
                                                     const TrainWanted& wanted,
                                                     const std::string& only);

}  // namespace weft::plan
