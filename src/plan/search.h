// Searches layouts: every way to shard a model over a cluster's ranks, best first, and alternatives
// to the cluster.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

// Smallest gain in speed for which more machines are recommended.
inline constexpr double kWorthwhile = 0.05;

// kMostSearched: most ranks; each layout is predicted separately, which takes seconds at this size.
// kMostAsked: most ranks for which alternative clusters are predicted.
inline constexpr int kMostSearched = 4096, kMostAsked = 1024;

struct WhatIf {
    std::string words;  // "tcp", "5 machines", "half the latency"
    std::string layout;
    double tok_s = 0, answer_s = 0;
    double gain = 0;        // gain in answers per second over the given cluster: 0.1 is 10 % faster
    bool machines = false;  // another number of machines; a gain under kWorthwhile is not worth it
};

struct Plan {
    std::vector<Prediction> layouts;   // layouts that fit first, then by answer_s; never empty
    std::vector<std::string> refused;  // impossible layouts and the reason
    std::vector<WhatIf> what_if;       // empty if nothing fits, or the ranks are too many
};

// Sets of hosts that are searched: all; for unlike hosts also each kind alone, all without the
// slowest kind, all without the two slowest kinds, ...
std::vector<std::vector<int>> PartsOf(const ClusterSpec& cluster);

// The fitting layout that answers soonest. Errors: those of Search; kUnsupported if none fits.
Result<Prediction> FindBest(const ModelWalk& walk, const ClusterSpec& cluster,
                            const Workload& load);

// Layouts that Search tries for like hosts.
std::vector<model::Layout> LayoutsOf(const ClusterSpec& cluster, const model::Hyper& hyper);
// Layouts of all ranks without expert groups: tensor ranks in pipelines.
std::vector<model::Layout> PipelinesOf(const ClusterSpec& cluster, const model::Hyper& hyper);

// The first fitting layout in the order of `better`, for like hosts; only among those that are
// `enough`, if it is set. Plans memory of few layouts. known: of the same model and workload.
// Errors: kUnsupported if none fits.
using IsBetterLayout = std::function<bool(const Prediction&, const Prediction&)>;
using IsEnough = std::function<bool(const Prediction&)>;
Result<Prediction> FindFitting(const ModelWalk& walk, const ClusterSpec& cluster,
                               const Workload& load, RanksKnown& known,
                               std::span<const model::Layout> layouts, const IsBetterLayout& better,
                               const IsEnough& enough = {});

// Tries all tp x pp (x expert groups) on all ranks, on the first 1, 2, 4, ... devices of a host,
// and on the first 1, 2, 4, ... hosts. For unlike hosts also the parts of PartsOf, with a search of
// shares (plan/uneven.h). Errors: kUnsupported if no layout is possible, or there are more than
// kMostSearched ranks.
Result<Plan> Search(const ModelWalk& walk, const ClusterSpec& cluster, const Library& library,
                    const Workload& load);

}  // namespace weft::plan
