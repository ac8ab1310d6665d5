// The search over layouts: every way to cut a model over a cluster's ranks, best first, and what
// else the cluster could be.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

// More machines that make an answer less than this much faster are not worth having.
inline constexpr double kWorthwhile = 0.05;

// Each layout is tried on its own, which takes some seconds for so many ranks; what else the
// cluster could be is asked of no more than kMostAsked.
inline constexpr int kMostSearched = 4096, kMostAsked = 1024;

struct WhatIf {
    std::string words;  // "tcp", "5 machines", "half the latency"
    std::string layout;
    double tok_s = 0, answer_s = 0;
    double gain = 0;        // in answers a second over the cluster as it is: 0.1 is 10 % faster
    bool machines = false;  // about their number: gains under kWorthwhile say to stop
};

struct Plan {
    std::vector<Prediction> layouts;   // those that fit first, by answer_s; never empty
    std::vector<std::string> refused;  // layouts that the model can't be cut in, and why
    std::vector<WhatIf> what_if;       // empty where nothing fits, or of too many ranks
};

// Which hosts are searched together: all; of unlike ones each kind alone, too, and all without the
// slowest kind, without the two slowest, ...
std::vector<std::vector<int>> PartsOf(const ClusterSpec& cluster);

// The layout that fits and answers soonest. Errors: as of Search, and kUnsupported where none fits.
Result<Prediction> FindBest(const ModelWalk& walk, const ClusterSpec& cluster,
                            const Workload& load);

// All that were searched and can be, those that fit first, by answer_s. known: of the same model
// and workload. Errors: as of Search.
Result<std::vector<Prediction>> FindLayouts(const ModelWalk& walk, const ClusterSpec& cluster,
                                            const Workload& load, RanksKnown& known);

// Of all layouts of like hosts, in the order of `better`, the first that fits. Plans memory of few.
// Errors: as of Search, and kUnsupported where none fits.
using IsBetterLayout = std::function<bool(const Prediction&, const Prediction&)>;
Result<Prediction> FindFitting(const ModelWalk& walk, const ClusterSpec& cluster,
                               const Workload& load, RanksKnown& known,
                               const IsBetterLayout& better);

// All tp x pp (x expert groups) of all ranks, of the first 1, 2, 4, ... devices of a host and of
// the first 1, 2, 4, ... hosts. Of unlike hosts also those of each kind alone, of all without the
// slowest kind, without the two slowest, ...; their shares are searched (plan/uneven.h). Errors:
// kUnsupported where no layout can be, or there are more than kMostSearched ranks.
Result<Plan> Search(const ModelWalk& walk, const ClusterSpec& cluster, const Library& library,
                    const Workload& load);

}  // namespace weft::plan
