#include "plan/scaling.h"

#include <algorithm>
#include <set>

#include "plan/search.h"

namespace weft::plan {
namespace {

constexpr int64_t kLeastContext = 512, kMostContext = 1 << 20;

void AddPoint(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
              const Workload& load, double x, std::vector<ScalingPoint>& points) {
    const auto best = FindBest(walk, cluster, runtime, load);
    if (best.ok()) points.push_back({x, best->tok_s, best->name});
}

}  // namespace

Result<Scaling> FindScaling(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                            const Workload& load) {
    Scaling scaling;
    const int hosts = static_cast<int>(cluster.hosts.size());
    std::set<int> counts = {hosts};
    for (int count = 1; cluster.alike() && count <= 2 * hosts; count *= 2) counts.insert(count);
    for (const int count : counts) {
        const Cluster some = cluster.WithHosts(count);
        if (some.ranks() > kMostSearched) break;
        AddPoint(walk, some, runtime, load, count, scaling.strong);
        Workload more = load;
        more.batch *= count;
        AddPoint(walk, some, runtime, more, count, scaling.weak);
    }
    const int64_t most = std::clamp(walk.hyper().context, kLeastContext, kMostContext);
    for (int64_t context = kLeastContext; context <= most; context *= 2) {
        Workload at = load;
        at.context = context;
        at.prompt = std::min(load.prompt_tokens(), context);
        AddPoint(walk, cluster, runtime, at, static_cast<double>(context), scaling.context);
    }
    if (scaling.strong.empty()) {
        return MakeError(ErrorCode::kUnsupported, "{}: no layout fits on {}: nothing to draw",
                         walk.source().name(), cluster.words);
    }
    return scaling;
}

}  // namespace weft::plan
