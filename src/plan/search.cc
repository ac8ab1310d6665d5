#include "plan/search.h"

#include <algorithm>
#include <set>

#include "plan/uneven.h"

namespace weft::plan {
namespace {

// Those of `ranks` ranks.
void AddLayouts(const model::Hyper& hyper, int ranks, std::vector<model::Layout>& layouts) {
    for (int tp = 1; tp <= ranks; ++tp) {
        if (ranks % tp != 0) continue;
        model::Layout layout;
        layout.tp = tp;
        layout.pp = ranks / tp;
        if (layout.pp > hyper.layers) continue;
        layouts.push_back(layout);
        for (int ep = 2; hyper.moe.experts > 0 && ep <= tp; ++ep) {
            if (tp % ep != 0) continue;
            layout.ep = ep;
            layouts.push_back(layout);
        }
    }
}

std::vector<model::Layout> LayoutsOf(const Cluster& cluster, const model::Hyper& hyper) {
    std::vector<model::Layout> layouts;
    std::set<int> sizes = {cluster.ranks()};
    const int hosts = static_cast<int>(cluster.hosts.size());
    for (int some = 1; cluster.alike() && some < cluster.hosts[0].devices; some *= 2) {
        sizes.insert(some);
    }
    for (int some = 1; cluster.alike() && some < hosts; some *= 2) {
        sizes.insert(some * cluster.hosts[0].devices);
    }
    for (const int ranks : sizes) AddLayouts(hyper, ranks, layouts);
    return layouts;
}

struct Found {
    std::vector<Prediction> layouts;
    std::vector<std::string> refused;
    std::string error;
};

Found PredictAll(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                 const Workload& load) {
    Found found;
    LayoutPredictor predictor(walk, cluster, runtime, load);
    const bool alike = cluster.alike();
    for (const model::Layout& layout : LayoutsOf(cluster, walk.hyper())) {
        auto prediction = alike ? predictor.Predict(layout) : PredictUneven(predictor, layout);
        if (prediction.ok()) {
            // Expert groups that were not asked for, but needed, are asked for later.
            const bool is_new = std::ranges::none_of(found.layouts, [&](const Prediction& p) {
                return p.name == prediction->name && p.hosts == prediction->hosts;
            });
            if (is_new) found.layouts.push_back(std::move(*prediction));
            continue;
        }
        found.error = prediction.error().message;
        found.refused.push_back(fmt::format("tp{} pp{} ep{}: {}", layout.tp, layout.pp,
                                            std::max(layout.ep, 1), found.error));
    }
    std::ranges::stable_sort(found.layouts, [](const Prediction& a, const Prediction& b) {
        if (a.fits() != b.fits()) return a.fits();
        return a.fits() ? a.tok_s > b.tok_s : a.worst().needed < b.worst().needed;
    });
    return found;
}

Status CheckSize(const Cluster& cluster) {
    if (cluster.ranks() <= kMostSearched) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {} ranks; layouts of at most {} are searched. Plan one of several "
                     "replicas",
                     cluster.words, cluster.ranks(), kMostSearched);
}

class Questions {
  public:
    Questions(const ModelWalk& walk, const Runtime& runtime, const Workload& load,
              const Prediction& best)
        : walk_(walk), runtime_(runtime), load_(load), best_(best) {}

    void Ask(const std::string& words, const Cluster& other, bool machines) {
        if (other.ranks() > kMostAsked) return;
        const Found found = PredictAll(walk_, other, runtime_, load_);
        if (found.layouts.empty() || !found.layouts[0].fits()) return;
        const Prediction& then = found.layouts[0];
        answers_.push_back({words, then.name, then.tok_s, then.tok_s / best_.tok_s - 1, machines});
    }
    std::vector<WhatIf> Take() { return std::move(answers_); }

  private:
    const ModelWalk& walk_;
    const Runtime& runtime_;
    const Workload& load_;
    const Prediction& best_;
    std::vector<WhatIf> answers_;
};

}  // namespace

Result<Prediction> FindBest(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                            const Workload& load) {
    WEFT_TRY(CheckSize(cluster));
    Found found = PredictAll(walk, cluster, runtime, load);
    if (found.layouts.empty() || !found.layouts[0].fits()) {
        return MakeError(ErrorCode::kUnsupported, "{}: no layout of {} ranks fits",
                         walk.source().name(), cluster.ranks());
    }
    return std::move(found.layouts[0]);
}

Result<Plan> Search(const ModelWalk& walk, const Cluster& cluster, const Runtime& runtime,
                    const Library& library, const Workload& load) {
    WEFT_TRY(CheckSize(cluster));
    Found found = PredictAll(walk, cluster, runtime, load);
    if (found.layouts.empty()) {
        return MakeError(ErrorCode::kUnsupported, "{}: no layout of {} ranks is possible: {}",
                         walk.source().name(), cluster.ranks(), found.error);
    }
    Plan plan{std::move(found.layouts), std::move(found.refused), {}};
    if (!plan.layouts[0].fits() || cluster.ranks() > kMostAsked) return plan;
    Questions questions(walk, runtime, load, plan.layouts[0]);
    const int hosts = static_cast<int>(cluster.hosts.size());
    if (hosts > 1 && !cluster.wire.instead.empty()) {
        Cluster other = cluster;
        WEFT_ASSIGN(other.wire, library.FindWire(cluster.wire.instead));
        questions.Ask(other.wire.name, other, false);
    }
    if (hosts > 1) {
        Cluster other = cluster;
        other.wire.latency.value /= 2;
        questions.Ask("half the latency", other, false);
    }
    questions.Ask(fmt::format("{} machines", hosts + 1), cluster.WithHosts(hosts + 1), true);
    if (hosts > 1) {
        questions.Ask(fmt::format("{} machines", hosts * 2), cluster.WithHosts(hosts * 2), true);
    }
    plan.what_if = questions.Take();
    return plan;
}

}  // namespace weft::plan
