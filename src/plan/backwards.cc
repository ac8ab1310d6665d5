#include "plan/backwards.h"

#include <algorithm>
#include <set>
#include <utility>

namespace weft::plan {
namespace {

constexpr int kCounts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr size_t kMostNearest = 5;

// Layouts of all ranks that are worth a try where one answer for each cluster is enough: tensor
// ranks within a host or over all of them, and pipelines of these.
std::vector<model::Layout> LayoutsToTry(const Cluster& cluster, const model::Hyper& hyper) {
    std::vector<model::Layout> layouts;
    const int ranks = cluster.ranks(), devices = cluster.hosts[0].devices;
    std::set<int> tensor = {1, devices, ranks};
    for (int tp = 2; tp < ranks; tp *= 2) tensor.insert(tp);
    for (const int tp : tensor) {
        if (ranks % tp != 0 || ranks / tp > hyper.layers) continue;
        model::Layout layout;
        layout.tp = tp;
        layout.pp = ranks / tp;
        layouts.push_back(layout);
    }
    return layouts;
}

class Shopping {
  public:
    Shopping(const ModelWalk& walk, const Runtime& runtime, const Workload& load,
             const Wanted& wanted)
        : walk_(walk), runtime_(runtime), load_(load), wanted_(wanted) {
        weights_ = static_cast<double>(walk.source().TotalBytes());
    }

    // The fewest hosts of this kind that do it.
    void Try(const MachineOnWire& kind) {
        const Machine& machine = kind.machine;
        std::optional<Offer> nearest;
        const bool again = std::exchange(last_, machine.name) == machine.name;  // another wire
        for (const int count : kCounts) {
            if (count > wanted_.most_hosts) break;
            if (again && count == 1) continue;
            const Cluster cluster = kind.Times(count);
            const std::optional<double> price = cluster.price();
            if (!price || (wanted_.budget && *price > *wanted_.budget)) break;
            if (weights_ > machine.memory.value * cluster.ranks()) continue;
            auto best = BestOf(cluster);
            if (!best) continue;
            Offer offer{cluster.words, std::move(*best), *price, PriceIsGuessed(cluster)};
            const bool fast = offer.best.tok_s >= wanted_.tok_s;
            const bool soon = !wanted_.ttft_s || offer.best.ttft_s <= *wanted_.ttft_s;
            if (fast && soon && wanted_.tok_s > 0) {
                offers_.enough.push_back(std::move(offer));
                return;
            }
            if (wanted_.tok_s <= 0 && !soon) continue;
            if (!nearest || offer.best.tok_s > nearest->best.tok_s) nearest = std::move(offer);
        }
        if (!nearest) return;
        auto& offers = wanted_.tok_s > 0 ? offers_.nearest : offers_.enough;
        offers.push_back(std::move(*nearest));
    }

    Offers Take() {
        const auto cheaper = [](const Offer& a, const Offer& b) { return a.price < b.price; };
        const auto faster = [](const Offer& a, const Offer& b) {
            return a.best.tok_s > b.best.tok_s;
        };
        if (wanted_.tok_s > 0) {
            std::ranges::stable_sort(offers_.enough, cheaper);
        } else {
            std::ranges::stable_sort(offers_.enough, faster);
        }
        std::ranges::stable_sort(offers_.nearest, faster);
        if (!offers_.enough.empty()) offers_.nearest.clear();
        offers_.nearest.resize(std::min(offers_.nearest.size(), kMostNearest));
        return std::move(offers_);
    }

  private:
    std::optional<Prediction> BestOf(const Cluster& cluster) const {
        std::optional<Prediction> best;
        for (const model::Layout& layout : LayoutsToTry(cluster, walk_.hyper())) {
            auto p = Predict(walk_, cluster, runtime_, layout, load_);
            if (!p.ok() || !p->fits()) continue;
            if (!best || p->tok_s > best->tok_s) best = std::move(*p);
        }
        return best;
    }

    const ModelWalk& walk_;
    const Runtime& runtime_;
    const Workload& load_;
    const Wanted& wanted_;
    double weights_ = 0;
    std::string last_;
    Offers offers_;
};

Result<std::vector<Machine>> MachinesOf(const Library& library, const std::string& only) {
    std::vector<Machine> machines;
    if (only.empty()) {
        for (const auto& [name, machine] : library.machines()) machines.push_back(machine);
        return machines;
    }
    WEFT_ASSIGN(const Cluster named, library.ParseCluster(only));
    for (const Machine& machine : named.hosts) {
        const bool known =
            std::ranges::any_of(machines, [&](const Machine& m) { return m.name == machine.name; });
        if (!known) machines.push_back(machine);
    }
    return machines;
}

}  // namespace

Cluster MachineOnWire::Times(int count) const {
    Cluster cluster;
    cluster.hosts.assign(static_cast<size_t>(count), machine);
    cluster.wire = wire;
    cluster.words =
        count == 1 ? machine.name : fmt::format("{}x{},{}", count, machine.name, wire.name);
    return cluster;
}

bool PriceIsGuessed(const Cluster& cluster) {
    const bool wire = cluster.hosts.size() > 1 && cluster.wire.price->mark == Mark::kGuessed;
    return wire || cluster.hosts[0].price->mark == Mark::kGuessed;
}

Result<std::vector<MachineOnWire>> KindsToTry(const Library& library, const std::string& only) {
    WEFT_ASSIGN(const std::vector<Machine> machines, MachinesOf(library, only));
    const bool one_wire = only.find(',') != only.npos;
    std::vector<MachineOnWire> kinds;
    for (const Machine& machine : machines) {
        if (!machine.price) {
            if (only.empty()) continue;
            return MakeError(ErrorCode::kUsage, "machine '{}' has no price; add one to its file",
                             machine.name);
        }
        Wire wire;
        if (one_wire) {
            WEFT_ASSIGN(const Cluster named, library.ParseCluster(only));
            wire = named.wire;
        } else if (machine.own_wire) {
            wire = *machine.own_wire;
        } else {
            WEFT_ASSIGN(wire, library.FindWire(machine.wire));
        }
        kinds.push_back({machine, wire});
        if (one_wire || wire.instead.empty()) continue;
        WEFT_ASSIGN(const Wire other, library.FindWire(wire.instead));
        kinds.push_back({machine, other});
    }
    return kinds;
}

Result<Offers> FindMachines(const ModelWalk& walk, const Runtime& runtime, const Library& library,
                            const Workload& load, const Wanted& wanted, const std::string& only) {
    if (wanted.tok_s <= 0 && !wanted.budget && !wanted.ttft_s) {
        return MakeError(ErrorCode::kUsage, "nothing is wanted: --want 20tok/s, --budget 8000EUR");
    }
    WEFT_ASSIGN(const std::vector<MachineOnWire> kinds, KindsToTry(library, only));
    Shopping shopping(walk, runtime, load, wanted);
    for (const MachineOnWire& kind : kinds) shopping.Try(kind);
    return shopping.Take();
}

}  // namespace weft::plan
