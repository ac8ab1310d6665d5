#include "plan/search.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace weft::plan {
namespace {

// A search of unlike hosts predicts at most this many kinds of ranks, besides the kinds of even
// shares. This takes a second or two.
constexpr size_t kMostKinds = 1400;

// Every count of hosts or devices up to this one is tried; above it, only doubled counts.
constexpr int kEachCount = 16;

// Most cards in one host.
constexpr int kMostInOneHost = 8;

// Adds all layouts of `ranks` ranks. groups: also those with expert groups.
void AddLayouts(const model::Hyper& hyper, int ranks, bool groups,
                std::vector<model::Layout>& layouts) {
    for (int tp = 1; tp <= ranks; ++tp) {
        if (ranks % tp != 0) continue;
        model::Layout layout;
        layout.tp = tp;
        layout.pp = ranks / tp;
        if (layout.pp > hyper.layers) continue;
        layouts.push_back(layout);
        for (int ep = 2; groups && hyper.moe.experts > 0 && ep <= tp; ++ep) {
            if (tp % ep != 0) continue;
            layout.ep = ep;
            layouts.push_back(layout);
        }
    }
}

// Tensor shares add up to kShareUnits. A search of shares tries at most kMostTries layouts.
constexpr int kShareUnits = 128, kMostTries = 400;

using Shares = std::vector<int>;

// Rounds to whole parts of at least one, `total` in all; the largest remainders get the rest.
Shares InParts(const std::vector<double>& weights, int total) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    Shares parts;
    std::vector<std::pair<double, size_t>> rest;
    for (size_t i = 0; i < weights.size(); ++i) {
        const double exact = weights[i] / sum * total;
        parts.push_back(std::max(1, static_cast<int>(exact)));
        rest.emplace_back(exact - parts.back(), i);
    }
    std::ranges::sort(rest, std::greater<>());
    int left = total - std::accumulate(parts.begin(), parts.end(), 0);
    for (size_t i = 0; left > 0; ++i, --left) ++parts[rest[i % rest.size()].second];
    while (left < 0) {  // the smallest parts were rounded up to one
        --*std::ranges::max_element(parts);
        ++left;
    }
    return parts;
}

std::vector<double> AsShares(const Shares& parts) {
    return {parts.begin(), parts.end()};
}

// Two tensor ranks or stages with equal machines, share and ends of the pipeline are of one kind.
using Kind = std::tuple<std::vector<std::string>, int, int>;

// Whether `a` fits and `b` does not, or else `a` lacks less memory or answers sooner.
bool IsBetter(const Prediction& a, const Prediction& b) {
    const auto lack = [](const Prediction& p) {
        double all = 0;
        for (const MemoryUse& use : p.memory) all += use.lack();
        return all;
    };
    if (a.fits() != b.fits()) return a.fits();
    if (!a.fits() && lack(a) != lack(b)) return lack(a) < lack(b);
    return a.answer_s * (1 + 1e-9) < b.answer_s;
}

// Searches uneven shares for unlike hosts: how much of a stage each tensor rank gets, or how many
// layers each stage gets. Shares have the form of --tensor-split.
class UnevenLayout {
  public:
    UnevenLayout(LayoutPredictor& predictor, const ClusterSpec& cluster,
                 const model::Layout& layout)
        : predictor_(&predictor), cluster_(&cluster), layout_(layout) {
        for (const Machine& host : cluster.hosts) {
            machines_.insert(machines_.end(), static_cast<size_t>(host.devices), &host);
        }
    }

    // Tries even shares, shares by devices' bandwidth, and shares by devices' memory. Stops with
    // the first ones that fit once the predictor has `most_known` kinds of ranks. Errors: those of
    // Predict.
    Status Begin(size_t most_known) {
        Result<Prediction> even = predictor_->Predict(*cluster_, layout_);
        const auto fits = [&] { return (even.ok() && even->fits()) || (best_ && best_->fits()); };
        for (const Shares& tensor : TensorShares()) {
            if (predictor_->known_kinds() >= most_known && fits()) break;
            if (layout_.pp == 1) {
                Try(tensor, {});
                continue;
            }
            Try(tensor, InParts(StageSpeeds(tensor), Layers()));
            Try(tensor, InParts(StageRooms(), Layers()));
        }
        if (!best_) {
            if (!even.ok()) return even.error();
            best_ = std::move(*even);
        } else if (even.ok() && !IsBetter(*best_, *even)) {
            even_ = std::move(*even);
        }
        return {};
    }

    // Moves shares between ranks as long as the prediction improves. Stops once the predictor has
    // predicted `most_kinds` more kinds of ranks, or kMostTries layouts.
    void Refine(size_t most_kinds) {
        most_kinds_ = predictor_->known_kinds() + most_kinds;
        for (int step = std::max(kShareUnits, Layers()) / 4; step > 0; step /= 2) {
            while (Improve(step)) {
            }
        }
    }

    const Prediction& best() const { return even_ && !IsBetter(*best_, *even_) ? *even_ : *best_; }

  private:
    int Layers() const { return static_cast<int>(predictor_->walk().hyper().layers); }
    const Machine& MachineOf(int stage, int tensor_rank) const {
        return *machines_[static_cast<size_t>(stage * layout_.tp + tensor_rank)];
    }
    double Speed(int stage, int tensor_rank) const {
        return MachineOf(stage, tensor_rank).sustained_bytes_per_s();
    }

    // Tensor shares to try: even ones; by the speeds in each stage; by the sums of speeds over
    // stages; and by memory.
    std::set<Shares> TensorShares() const {
        std::set<Shares> all;
        if (layout_.tp == 1) return {Shares()};
        const auto tp = static_cast<size_t>(layout_.tp);
        std::vector<double> sums(tp, 0), rooms(tp, 0);
        for (int stage = 0; stage < layout_.pp; ++stage) {
            std::vector<double> speeds;
            for (int t = 0; t < layout_.tp; ++t) {
                speeds.push_back(Speed(stage, t));
                rooms[static_cast<size_t>(t)] += MachineOf(stage, t).memory.value;
            }
            for (size_t t = 0; t < tp; ++t) sums[t] += speeds[t];
            all.insert(InParts(speeds, kShareUnits));
        }
        all.insert(InParts(sums, kShareUnits));
        all.insert(InParts(rooms, kShareUnits));
        all.insert(InParts(std::vector<double>(tp, 1), kShareUnits));
        return all;
    }

    // Relative layers per second; a stage is as slow as its slowest tensor rank.
    std::vector<double> StageSpeeds(const Shares& tensor) const {
        std::vector<double> speeds;
        for (int stage = 0; stage < layout_.pp; ++stage) {
            double slowest = 0;
            for (int t = 0; t < layout_.tp; ++t) {
                const double share = tensor.empty() ? 1 : tensor[static_cast<size_t>(t)];
                slowest = std::max(slowest, share / Speed(stage, t));
            }
            speeds.push_back(1 / slowest);
        }
        return speeds;
    }

    std::vector<double> StageRooms() const {
        std::vector<double> rooms;
        for (int stage = 0; stage < layout_.pp; ++stage) {
            double room = 0;
            for (int t = 0; t < layout_.tp; ++t) room += MachineOf(stage, t).memory.value;
            rooms.push_back(room);
        }
        return rooms;
    }

    bool Try(const Shares& tensor, const Shares& stages) {
        if (predictor_->known_kinds() > most_kinds_) return false;
        if (++tries_ > kMostTries || !tried_.emplace(tensor, stages).second) return false;
        model::Layout layout = layout_;
        layout.tp_shares = AsShares(tensor);
        layout.pp_shares = AsShares(stages);
        Result<Prediction> prediction = predictor_->Predict(*cluster_, layout);
        if (!prediction.ok()) return false;  // a rank's share is too small
        if (best_ && !IsBetter(*prediction, *best_)) return false;
        best_ = std::move(*prediction);
        tensor_ = tensor;
        stages_ = stages;
        return true;
    }

    // Kinds by stage, or by tensor rank.
    std::vector<Kind> Kinds(bool of_stages) const {
        std::vector<Kind> kinds;
        const Shares& shares = of_stages ? stages_ : tensor_;
        const int others = of_stages ? layout_.tp : layout_.pp;
        for (int i = 0; i < static_cast<int>(shares.size()); ++i) {
            std::vector<std::string> words;
            for (int other = 0; other < others; ++other) {
                words.push_back(of_stages ? MachineOf(i, other).word : MachineOf(other, i).word);
            }
            const int end = !of_stages ? 0 : i == 0 ? 1 : i == layout_.pp - 1 ? 2 : 0;
            kinds.emplace_back(std::move(words), shares[static_cast<size_t>(i)], end);
        }
        return kinds;
    }

    // Moves `step` parts between tensor ranks or stages, one pair of each kind.
    bool Improve(int step) {
        bool better = false;
        for (const bool of_stages : {true, false}) {
            const size_t count = (of_stages ? stages_ : tensor_).size();
            std::set<std::pair<Kind, Kind>> moves;
            for (size_t giver = 0; giver < count; ++giver) {
                for (size_t taker = 0; taker < count; ++taker) {
                    Shares moved = of_stages ? stages_ : tensor_;
                    if (giver == taker || moved[giver] <= step) continue;
                    const std::vector<Kind> kinds = Kinds(of_stages);
                    if (!moves.emplace(kinds[giver], kinds[taker]).second) continue;
                    moved[giver] -= step;
                    moved[taker] += step;
                    better |= of_stages ? Try(tensor_, moved) : Try(moved, stages_);
                }
            }
        }
        return better;
    }

    LayoutPredictor* predictor_;
    const ClusterSpec* cluster_;
    std::vector<const Machine*> machines_;  // by rank
    model::Layout layout_;
    std::optional<Prediction> best_, even_;  // even_: set while it is better than all shares tried
    Shares tensor_, stages_;                 // of the best
    size_t most_kinds_ = SIZE_MAX;
    std::set<std::pair<Shares, Shares>> tried_;
    int tries_ = 0;
};

struct Found {
    std::vector<Prediction> layouts;
    std::vector<std::string> refused;
    std::string error;
};

// Refines the shares of unlike hosts' layouts, fastest first, until most_kinds kinds of ranks were
// predicted.
class LayoutSearch {
  public:
    explicit LayoutSearch(LayoutPredictor& predictor) : predictor_(predictor) {}

    Found Run(const ClusterSpec& cluster, size_t most_kinds) {
        for (const std::vector<int>& hosts : PartsOf(cluster)) {
            parts_.push_back({hosts, cluster.Part(hosts), hosts.size() == cluster.hosts.size()});
        }
        // Half of the kinds is for the refinement. Expert groups multiply the layouts, so layouts
        // without them come first.
        const size_t begun = predictor_.known_kinds();
        for (const bool groups : {false, true}) {
            for (const Part& part : parts_) Begin(part, groups, begun + most_kinds / 2);
        }
        most_kinds -= std::min(most_kinds, predictor_.known_kinds() - begun);
        std::ranges::stable_sort(uneven_, [](const Uneven& a, const Uneven& b) {
            return a.layout.best().IsBetterThan(b.layout.best());
        });
        for (Uneven& uneven : uneven_) {
            const size_t before = predictor_.known_kinds();
            // Refining one layout may predict at most half of the remaining kinds of ranks.
            uneven.layout.Refine(most_kinds / 2);
            most_kinds -= std::min(most_kinds, predictor_.known_kinds() - before);
            Add(*uneven.part, uneven.layout.best());
        }
        std::ranges::stable_sort(found_.layouts, &Prediction::IsBetterThan);
        return std::move(found_);
    }

  private:
    struct Part {
        std::vector<int> hosts;
        ClusterSpec cluster;
        bool is_all;
    };
    struct Uneven {
        const Part* part;
        UnevenLayout layout;
    };

    void Begin(const Part& part, bool groups, size_t most_known) {
        const bool alike = part.cluster.alike();
        for (const model::Layout& layout : LayoutsOf(part.cluster, predictor_.walk().hyper())) {
            if (groups != (layout.ep > 1)) continue;
            if (alike) {
                const auto prediction = predictor_.Predict(part.cluster, layout);
                prediction.ok() ? Add(part, *prediction) : Refuse(layout, prediction.error());
                continue;
            }
            UnevenLayout uneven(predictor_, part.cluster, layout);
            const Status begun = uneven.Begin(most_known);
            if (begun.ok()) {
                uneven_.push_back({&part, std::move(uneven)});
            } else {
                Refuse(layout, begun.error());
            }
        }
    }

    void Add(const Part& part, Prediction prediction) {
        if (!part.is_all) {
            prediction.used = part.hosts;
            prediction.used.resize(static_cast<size_t>(prediction.hosts));
        }
        // Layouts without expert groups get the groups they need; the same layout with explicit
        // groups comes later.
        const bool is_new = std::ranges::none_of(found_.layouts, [&](const Prediction& p) {
            return p.name == prediction.name && p.hosts == prediction.hosts &&
                   p.used == prediction.used;
        });
        if (is_new) found_.layouts.push_back(std::move(prediction));
    }

    void Refuse(const model::Layout& layout, const Error& error) {
        found_.error = error.message;
        const std::string words = fmt::format("tp{} pp{} ep{}: {}", layout.tp, layout.pp,
                                              std::max(layout.ep, 1), error.message);
        if (std::ranges::find(found_.refused, words) == found_.refused.end()) {
            found_.refused.push_back(words);
        }
    }

    LayoutPredictor& predictor_;
    std::deque<Part> parts_;  // (references stay valid)
    std::vector<Uneven> uneven_;
    Found found_;
};

Status CheckSize(const ClusterSpec& cluster) {
    if (cluster.ranks() <= kMostSearched) return {};
    return MakeError(ErrorCode::kUsage,
                     "{}: {} ranks; layouts of at most {} are searched. Plan one of several "
                     "replicas",
                     cluster.words, cluster.ranks(), kMostSearched);
}

Error NothingFits(const ModelWalk& walk, const ClusterSpec& cluster) {
    return MakeError(ErrorCode::kUnsupported, "{}: no layout of {} ranks fits",
                     walk.source().name(), cluster.ranks());
}

}  // namespace

std::vector<model::Layout> LayoutsOf(const ClusterSpec& cluster, const model::Hyper& hyper) {
    std::vector<model::Layout> layouts;
    std::set<int> sizes = {cluster.ranks()};
    const int hosts = static_cast<int>(cluster.hosts.size());
    const auto more = [](int some) { return some < kEachCount ? some + 1 : some * 2; };
    for (int some = 1; cluster.alike() && some < cluster.hosts[0].devices; some = more(some)) {
        sizes.insert(some);
    }
    for (int some = 1; cluster.alike() && some < hosts; some = more(some)) {
        sizes.insert(some * cluster.hosts[0].devices);
    }
    for (const int ranks : sizes) AddLayouts(hyper, ranks, true, layouts);
    return layouts;
}

std::vector<model::Layout> PipelinesOf(const ClusterSpec& cluster, const model::Hyper& hyper) {
    std::vector<model::Layout> layouts;
    AddLayouts(hyper, cluster.ranks(), false, layouts);
    return layouts;
}

std::vector<std::vector<int>> PartsOf(const ClusterSpec& cluster) {
    std::map<std::string, std::vector<int>> kinds;
    std::vector<int> all;
    for (int host = 0; host < static_cast<int>(cluster.hosts.size()); ++host) {
        kinds[cluster.hosts[static_cast<size_t>(host)].word].push_back(host);
        all.push_back(host);
    }
    std::vector<std::vector<int>> parts = {all};
    const auto add = [&](const std::vector<int>& part) {
        if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
    };
    const auto speed = [&](const std::vector<int>* hosts) {
        return cluster.hosts[static_cast<size_t>(hosts->front())].sustained_bytes_per_s();
    };
    std::vector<const std::vector<int>*> by_speed;
    for (const auto& [word, hosts] : kinds) by_speed.push_back(&hosts);
    std::ranges::stable_sort(by_speed, std::less<>(), speed);
    for (size_t slow = 0; slow + 1 < by_speed.size(); ++slow) {
        std::erase_if(all, [&](int host) {
            return std::ranges::find(*by_speed[slow], host) != by_speed[slow]->end();
        });
        add(all);
    }
    for (const auto& [word, hosts] : kinds) add(hosts);
    return parts;
}

Result<Prediction> FindFitting(LayoutPredictor& predictor, const ClusterSpec& cluster,
                               std::span<const model::Layout> layouts, const IsBetterLayout& better,
                               const IsEnough& enough) {
    std::vector<Prediction> timed;
    for (const model::Layout& layout : layouts) {
        auto prediction = predictor.Predict(cluster, layout, false);
        if (prediction.ok()) timed.push_back(*std::move(prediction));
    }
    std::ranges::stable_sort(timed, better);
    for (const Prediction& prediction : timed) {
        if (enough && !enough(prediction)) break;
        if (!predictor.MayFit(cluster, prediction)) continue;
        auto whole = predictor.Predict(cluster, prediction.layout);
        if (whole.ok() && whole->fits()) return whole;
    }
    return NothingFits(predictor.walk(), cluster);
}

Result<Prediction> FindBest(const ModelWalk& walk, const ClusterSpec& cluster,
                            const Workload& load) {
    WEFT_TRY(CheckSize(cluster));
    LayoutPredictor predictor(walk, load);
    Found found = LayoutSearch(predictor).Run(cluster, kMostKinds);
    if (found.layouts.empty() || !found.layouts[0].fits()) return NothingFits(walk, cluster);
    return std::move(found.layouts[0]);
}

// Drops the measured times of collectives. Returns whether there were any.
static bool ForgetTables(ClusterSpec& cluster) {
    bool any = false;
    for (Machine& host : cluster.hosts) {
        if (!host.measured) continue;
        Measured& its = *host.measured;
        for (auto* curve : {&its.all_reduce, &its.all_gather, &its.reduce_scatter}) {
            any = any || !curve->empty();
            curve->clear();
        }
    }
    return any;
}

Result<Plan> Search(const ModelWalk& walk, const ClusterSpec& cluster, const Library& library,
                    const Workload& load) {
    WEFT_TRY(CheckSize(cluster));
    LayoutPredictor predictor(walk, load);
    Found found = LayoutSearch(predictor).Run(cluster, kMostKinds);
    if (found.layouts.empty()) {
        return MakeError(ErrorCode::kUnsupported, "{}: no layout of {} ranks is possible: {}",
                         walk.source().name(), cluster.ranks(), found.error);
    }
    Plan plan{std::move(found.layouts), std::move(found.refused), {}};
    if (!plan.layouts[0].fits() || cluster.ranks() > kMostRequested) return plan;
    const Prediction& best = plan.layouts[0];
    // Measured times of collectives hold for this wire and these ranks, so a question compares two
    // predictions without them. (A predictor keeps times by the names of machines.)
    ClusterSpec computed = cluster;
    LayoutPredictor other_predictor(walk, load);
    const bool measured = ForgetTables(computed);
    LayoutPredictor& asked = measured ? other_predictor : predictor;
    if (measured) found = LayoutSearch(asked).Run(computed, kMostKinds);
    const bool without = !found.layouts.empty() && found.layouts[0].fits();
    const Prediction& base = without ? found.layouts[0] : best;
    // no_worse: `other` has at least all of the cluster's hardware.
    const auto ask = [&](const std::string& words, const ClusterSpec& other, bool machines,
                         bool no_worse = true) {
        if (other.ranks() > kMostRequested) return;
        const Found there = LayoutSearch(asked).Run(other, kMostKinds / 8);
        if (there.layouts.empty() || !there.layouts[0].fits()) return;
        // If the search found no better layout there, the current layout is used.
        const bool better = !no_worse || there.layouts[0].IsBetterThan(base);
        const Prediction& then = better ? there.layouts[0] : base;
        const double faster = base.answer_s / then.answer_s;
        plan.what_if.push_back({words, better ? then.name : best.name,
                                best.tok_s * then.tok_s / base.tok_s, best.answer_s / faster,
                                faster - 1, machines});
    };
    const int hosts = static_cast<int>(cluster.hosts.size());
    ClusterSpec rewired = computed;
    if (hosts > 1 && !cluster.wire.instead.empty()) {
        WEFT_ASSIGN(const Wire wire, library.FindWire(cluster.wire.instead));
        rewired.Join(wire);
    }
    const bool another = rewired.wire.name != cluster.wire.name;
    if (another) {
        const bool no_worse = rewired.wire.bandwidth.value >= cluster.wire.bandwidth.value &&
                              rewired.wire.latency.value <= cluster.wire.latency.value;
        ask(rewired.wire.name, rewired, false, no_worse);
    }
    if (hosts > 1) {
        ClusterSpec other = computed;
        Wire wire = cluster.wire;
        wire.latency.value /= 2;
        other.Join(wire);
        ask("half the latency", other, false);
    }
    const Machine& first = computed.hosts[0];
    const bool cards = cluster.alike() && first.devices == 1 && !first.shares_memory();
    if (hosts > 1 && cards && hosts <= kMostInOneHost) {
        ClusterSpec other = computed;
        WEFT_ASSIGN(Machine box, WithDevices(first, hosts));
        other.hosts = {std::move(box)};
        ask("one host", other, false, false);
    }
    ask(fmt::format("{} machines", hosts + 1), computed.WithHosts(hosts + 1), true);
    if (hosts > 1) {
        ask(fmt::format("{} machines", hosts * 2), computed.WithHosts(hosts * 2), true);
    }
    return plan;
}

}  // namespace weft::plan
