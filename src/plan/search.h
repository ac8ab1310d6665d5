// Searches the ways to shard a model over a cluster's ranks, and predicts alternatives to the
// cluster.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/predict.h"

namespace weft::plan {

// More machines are recommended only if they gain at least this share of speed.
inline constexpr double kWorthwhile = 0.05;

// kMostSearched: most ranks of a cluster that Search accepts, because the search takes seconds at
// this size. kMostRequested: most ranks for which Search also predicts alternative clusters.
inline constexpr int kMostSearched = 4096, kMostRequested = 1024;

// The best layout on an alternative to the cluster.
struct WhatIf {
    std::string words;  // the difference: "tcp", "5 machines", "half the latency"
    std::string layout;
    double tok_s = 0, answer_s = 0;
    double gain = 0;        // in answers per second over the given cluster: 0.1 is 10 % faster
    bool machines = false;  // whether the number of machines differs (kWorthwhile then applies)
};

struct Plan {
    std::vector<Prediction> layouts;   // layouts that fit first, then by answer_s; never empty
    std::vector<std::string> refused;  // impossible layouts, each with the reason
    std::vector<WhatIf> what_if;  // empty if no layout fits, or for more than kMostRequested ranks
};

// Sets of hosts that Search tries. The first set is all hosts. If hosts differ, the other sets are
// all hosts without the slowest kind, all without the two slowest kinds, ..., and each kind alone.
std::vector<std::vector<int>> PartsOf(const ClusterSpec& cluster);

// Returns the layout that fits and has the smallest answer_s. Errors: kUsage (more than
// kMostSearched ranks), kUnsupported (no layout fits).
Result<Prediction> FindBest(const ModelWalk& walk, const ClusterSpec& cluster,
                            const Workload& load);

// Layouts that Search tries if all hosts are alike.
std::vector<model::Layout> LayoutsOf(const ClusterSpec& cluster, const model::Hyper& hyper);
// Layouts tp x pp of all ranks, without expert groups.
std::vector<model::Layout> PipelinesOf(const ClusterSpec& cluster, const model::Hyper& hyper);

// For a cluster of like hosts: sorts the layouts by `better` and returns the first one that fits;
// if `enough` is set, stops at the first layout for which it returns false. Plans the memory of as
// few layouts as possible. Errors: kUnsupported if none fits.
using IsBetterLayout = std::function<bool(const Prediction&, const Prediction&)>;
using IsEnough = std::function<bool(const Prediction&)>;
Result<Prediction> FindFitting(LayoutPredictor& predictor, const ClusterSpec& cluster,
                               std::span<const model::Layout> layouts, const IsBetterLayout& better,
                               const IsEnough& enough = {});

// Predicts all layouts tp x pp (x expert groups) on all ranks, on the first 1, 2, 4, ... devices of
// a host, and on the first 1, 2, 4, ... hosts. If hosts differ, does so for each set of PartsOf,
// and also searches how large a share each rank should get. Errors: kUsage (more than kMostSearched
// ranks), kUnsupported (no layout is possible).
Result<Plan> Search(const ModelWalk& walk, const ClusterSpec& cluster, const Library& library,
                    const Workload& load);

}  // namespace weft::plan
