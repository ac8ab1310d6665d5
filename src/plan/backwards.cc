#include "plan/backwards.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/host_part.h"
#include "plan/search.h"
#include "plan/weft_rates.h"

namespace weft::plan {
namespace {

constexpr int kCounts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};
constexpr size_t kMostNearest = 5, kMostEnough = 12;
// The search tries at most this many ranks on several hosts.
constexpr int kMostRanks = 32;

// Hosts of one kind and the wire between them.
struct MachineOnWire {
    Machine machine;
    Wire wire;
    int most_hosts = kCounts[std::size(kCounts) - 1];
    // A cluster of `count` hosts of this kind.
    ClusterSpec Times(int count) const {
        ClusterSpec cluster;
        cluster.hosts.assign(static_cast<size_t>(count), machine);
        cluster.Join(wire);
        // A word that begins with a digit would be parsed as a number of hosts.
        const bool plain = machine.word.empty() || machine.word[0] < '0' || machine.word[0] > '9';
        cluster.words = count == 1 && plain ? machine.word : cluster.HostWords();
        const bool own = machine.own_wire && machine.own_wire->name == wire.name;
        if (count > 1 && !own) cluster.words += "," + wire.name;
        return cluster;
    }
};

bool PriceIsGuessed(const ClusterSpec& cluster) {
    const bool wire = cluster.hosts.size() > 1 && cluster.wire.price->mark == Mark::kGuessed;
    return wire || cluster.hosts[0].price->mark == Mark::kGuessed;
}

// Bytes of weights read for one row of one sequence; 0: unknown.
double ReadBytes(const ModelWalk& walk) {
    const auto plan = model::PlanShards(walk.hyper(), walk.source(), model::Layout{});
    if (!plan.ok()) return 0;
    const auto work = walk.WorkOf(plan->shards[0]);
    if (!work.ok()) return 0;
    double bytes = 0;
    for (const Piece& piece : work->pieces) {
        const auto costs = program::Cost(piece.program, {1, 1, 1, 0});
        for (size_t i = 0; i < costs.size(); ++i) {
            if (!piece.program.ops[i].Is(program::Trait::kProduct)) continue;
            bytes += static_cast<double>(piece.count * costs[i].read_bytes);
        }
    }
    return bytes;
}

class Shopping {
  public:
    Shopping(const ModelWalk& walk, const Workload& load, const Wanted& wanted)
        : walk_(walk),
          load_(load),
          wanted_(wanted),
          predictor_(walk, load),
          weights_(static_cast<double>(walk.source().TotalBytes())),
          read_bytes_(ReadBytes(walk)) {}

    // Finds the fewest hosts of this kind that meet the request. If the request is only a budget,
    // finds the number of hosts with the smallest answer_s.
    void Try(const MachineOnWire& kind) {
        std::optional<Found> nearest;
        const bool again = std::exchange(last_, kind.machine.word) == kind.machine.word;
        const int first = again ? 2 : 1;  // (one host has no wire)
        int below = first - 1;            // largest count that was too few
        for (const int count : kCounts) {
            if (count < first || count > kind.most_hosts) continue;
            if (pass_ != Pass::kAny && IsTooSlow(kind, count)) {
                below = count;
                continue;
            }
            const bool few = count == 1 || kind.machine.devices * count <= kMostRanks;
            const bool possible = few && count <= wanted_.most_hosts && IsAffordable(kind, count);
            if (possible && !TryCount(kind, count, nearest)) {
                below = count;
                continue;
            }
            // Try counts between the largest that is too few and the smallest that is enough or too
            // expensive.
            for (int some = below + 1; is_wanted() && some < count; ++some) {
                if (some > wanted_.most_hosts || !IsAffordable(kind, some)) break;
                if (TryCount(kind, some, nearest)) break;
            }
            break;
        }
        if (!nearest) return;
        const bool enough = !is_wanted() || DoesIt(nearest->offer.best);
        (enough ? enough_ : nearest_).push_back(std::move(*nearest));
    }

    // Returns true if no offer was found, so the caller must search again for the closest offers;
    // the last search ignores the bound.
    bool WantsAnotherPass() {
        if (!enough_.empty() || !nearest_.empty() || pass_ == Pass::kAny) return false;
        pass_ = pass_ == Pass::kEnough ? Pass::kNearest : Pass::kAny;
        last_.clear();
        return true;
    }

    Offers Take() {
        Offers offers;
        const auto cheaper = [](const Offer& a, const Offer& b) { return a.price < b.price; };
        const auto sooner = [](const Offer& a, const Offer& b) {
            return a.best.answer_s < b.best.answer_s;
        };
        const auto by_price = [&](const Found& a, const Found& b) {
            return cheaper(a.offer, b.offer);
        };
        std::ranges::stable_sort(enough_, by_price);
        for (Found& found : enough_) {
            if (offers.enough.size() == kMostEnough && is_wanted()) break;
            if (IsBeaten(found.offer, offers.enough)) continue;
            SearchLayouts(found);
            if (!IsBeaten(found.offer, offers.enough)) {
                offers.enough.push_back(std::move(found.offer));
            }
        }
        if (is_wanted()) {
            std::ranges::stable_sort(offers.enough, cheaper);
        } else {
            std::ranges::stable_sort(offers.enough, sooner);
        }
        if (offers.enough.empty()) TakeNearest(offers);
        return offers;
    }

  private:
    // kEnough: only offers that meet the request; the memory of other offers is not planned.
    enum class Pass { kEnough, kNearest, kAny };
    struct Found {
        MachineOnWire kind;
        int count = 0;
        Offer offer;
    };

    // Searches all layouts of the closest offers; one of them may meet the request after all.
    void TakeNearest(Offers& offers) {
        const auto closer = [&](const Found& a, const Found& b) {
            return IsBetter(a.offer.best, b.offer.best);
        };
        std::ranges::stable_sort(nearest_, closer);
        nearest_.resize(std::min(nearest_.size(), kMostNearest));
        for (Found& found : nearest_) {
            const ClusterSpec cluster = found.kind.Times(found.count);
            auto best = Best(cluster, false);
            if (best && IsBetter(*best, found.offer.best)) {
                found.offer = OfferOf(cluster, *std::move(best));
            }
        }
        std::ranges::stable_sort(nearest_, closer);
        for (Found& found : nearest_) {
            const bool enough = DoesIt(found.offer.best);
            (enough ? offers.enough : offers.nearest).push_back(std::move(found.offer));
        }
        if (!offers.enough.empty()) offers.nearest.clear();
        std::ranges::stable_sort(offers.enough, {}, &Offer::price);
    }
    // The best layout of all, or of the layouts that meet the request; nullopt: too many ranks, or
    // no layout fits.
    std::optional<Prediction> Best(const ClusterSpec& cluster, bool only_enough) {
        if (cluster.ranks() > kMostRequested) return std::nullopt;
        return BestOf(cluster, LayoutsOf(cluster, walk_.hyper()), only_enough);
    }
    std::optional<Prediction> BestOf(const ClusterSpec& cluster,
                                     const std::vector<model::Layout>& layouts, bool only_enough) {
        IsEnough enough;
        if (only_enough) enough = [&](const Prediction& p) { return DoesIt(p); };
        auto best = FindFitting(
            predictor_, cluster, layouts,
            [&](const Prediction& a, const Prediction& b) { return IsBetter(a, b); }, enough);
        return best.ok() ? std::optional(*std::move(best)) : std::nullopt;
    }

    bool is_wanted() const { return wanted_.tok_s > 0 || wanted_.ttft_s.has_value(); }
    bool DoesIt(const Prediction& p) const {
        return p.fits() && p.tok_s >= wanted_.tok_s &&
               (!wanted_.ttft_s || p.ttft_s <= *wanted_.ttft_s);
    }
    bool IsAffordable(const MachineOnWire& kind, int count) const {
        const std::optional<double> price = kind.Times(count).price();
        return price && (!wanted_.budget || *price <= *wanted_.budget);
    }
    bool Holds(const MachineOnWire& kind, int count) const {
        const Machine& machine = kind.machine;
        const double host = machine.host ? machine.host->memory.value : 0;
        return weights_ <= (machine.memory.value * machine.devices + host) * count;
    }

    // Whether the hosts are too slow even if each rank did nothing but read its weights for a
    // token.
    bool IsTooSlow(const MachineOnWire& kind, int count) const {
        const Machine& machine = kind.machine;
        if (machine.measured || wanted_.tok_s == 0 || load_.draft.on()) return false;
        const double rate = machine.sustained_bytes_per_s() * RatesOfKind(machine).weights;
        const double ranks = machine.devices * count;
        return static_cast<double>(load_.batch) * rate * ranks < wanted_.tok_s * read_bytes_;
    }

    // A cheaper offer is at least as good in every figure.
    static bool IsBeaten(const Offer& offer, const std::vector<Offer>& cheaper) {
        const auto joules = [](const Offer& o) { return o.best.joules_per_token.value_or(0); };
        return std::ranges::any_of(cheaper, [&](const Offer& other) {
            return other.price <= offer.price && other.best.tok_s >= offer.best.tok_s &&
                   other.best.ttft_s <= offer.best.ttft_s && joules(other) <= joules(offer);
        });
    }

    // True if `count` hosts meet the request; `nearest` is then that result, else the closest so
    // far.
    bool TryCount(const MachineOnWire& kind, int count, std::optional<Found>& nearest) {
        if (!Holds(kind, count)) return false;
        const ClusterSpec cluster = kind.Times(count);
        // Pipelines of all ranks decide whether several hosts are enough. Layouts on fewer hosts
        // are tried with fewer hosts.
        const bool only_enough = is_wanted() && pass_ == Pass::kEnough;
        std::optional<Prediction> best =
            count == 1 ? Best(cluster, only_enough)
                       : BestOf(cluster, PipelinesOf(cluster, walk_.hyper()), only_enough);
        if (!best) return false;
        const bool enough = is_wanted() && DoesIt(*best);
        if (enough || !nearest || IsBetter(*best, nearest->offer.best)) {
            nearest = {kind, count, OfferOf(cluster, *std::move(best))};
        }
        return enough;
    }
    bool IsBetter(const Prediction& a, const Prediction& b) const {
        if (DoesIt(a) != DoesIt(b)) return DoesIt(a);
        if (DoesIt(a) || !is_wanted()) return a.answer_s < b.answer_s;
        return Nearness(a) > Nearness(b);
    }
    // The smallest ratio of reached to requested value over the requirements.
    double Nearness(const Prediction& p) const {
        double part = INFINITY;
        if (wanted_.tok_s > 0) part = p.tok_s / wanted_.tok_s;
        if (wanted_.ttft_s) part = std::min(part, *wanted_.ttft_s / p.ttft_s);
        return part;
    }
    static Offer OfferOf(const ClusterSpec& cluster, Prediction best) {
        return {cluster.words, std::move(best), *cluster.price(), PriceIsGuessed(cluster)};
    }

    // Searches all layouts of this number of hosts, then of fewer while they still meet the
    // request.
    void SearchLayouts(Found& found) {
        for (int count = found.count; count > 0; --count) {
            if (count < found.count && !(is_wanted() && Holds(found.kind, count))) return;
            const ClusterSpec cluster = found.kind.Times(count);
            if (cluster.ranks() > kMostSearched) return;
            auto best = Best(cluster, true);
            if (!best) return;
            found.offer = OfferOf(cluster, std::move(*best));
        }
    }

    const ModelWalk& walk_;
    const Workload& load_;
    const Wanted& wanted_;
    LayoutPredictor predictor_;
    double weights_ = 0, read_bytes_ = 0;  // read_bytes_: bytes of weights read per token
    Pass pass_ = Pass::kEnough;
    std::string last_;
    std::vector<Found> enough_, nearest_;
};

Result<std::vector<Machine>> MachinesOf(const Library& library, const std::string& only) {
    std::vector<Machine> machines;
    if (only.empty()) {
        for (const auto& [name, machine] : library.machines()) machines.push_back(machine);
        return machines;
    }
    WEFT_ASSIGN(const ClusterSpec named, library.ParseCluster(only));
    for (const Machine& machine : named.hosts) {
        const bool known =
            std::ranges::any_of(machines, [&](const Machine& m) { return m.word == machine.word; });
        if (!known) machines.push_back(machine);
    }
    return machines;
}

// The host of these cards with more and more memory for experts; none if the model has no experts
// or fits into the cards.
Result<std::vector<Machine>> WithMemory(const Machine& cards, const ModelWalk& walk) {
    std::vector<Machine> hosts;
    const auto bytes = static_cast<double>(walk.source().TotalBytes());
    const bool fits = bytes < cards.memory.value * cards.devices;
    if (walk.hyper().moe.experts == 0 || fits || cards.host) return hosts;
    for (const char* memory : {"64gb", "128gb", "256gb"}) {
        Machine& host = hosts.emplace_back(cards);
        WEFT_TRY(AddHost({&host, 1}, memory, *ParseHostWord(memory)));
    }
    return hosts;
}

Result<std::vector<MachineOnWire>> KindsToTry(const ModelWalk& walk, const Library& library,
                                              const std::string& only) {
    WEFT_ASSIGN(const std::vector<Machine> machines, MachinesOf(library, only));
    const bool one_wire = only.find(',') != only.npos;
    std::vector<MachineOnWire> kinds;
    for (const Machine& machine : machines) {
        if (!machine.price) {
            if (only.empty()) continue;
            return MakeError(ErrorCode::kUsage, "machine '{}' has no price; add one to its file",
                             machine.word);
        }
        Wire wire;
        if (one_wire) {
            WEFT_ASSIGN(const ClusterSpec named, library.ParseCluster(only));
            wire = named.wire;
        } else {
            WEFT_ASSIGN(wire, library.OwnWireOf(machine));
        }
        if (machine.own_wire && !wire.price) {
            wire.price = Figure{0, Mark::kGuessed, "part of the machine's price"};
        }
        std::vector<Machine> hosts = {machine};
        const bool card = machine.devices == 1 && !machine.shares_memory() &&
                          machine.word == machine.kind && !machine.measured;
        for (const int cards : {2, 4}) {
            if (!card) break;
            WEFT_ASSIGN(Machine several, WithDevices(machine, cards));
            hosts.push_back(std::move(several));
        }
        for (const Machine& host : hosts) {
            kinds.push_back({host, wire});
            if (!one_wire && !wire.instead.empty()) {
                WEFT_ASSIGN(const Wire other, library.FindWire(wire.instead));
                kinds.push_back({host, other});
            }
            if (!card) continue;
            WEFT_ASSIGN(std::vector<Machine> boxes, WithMemory(host, walk));
            for (Machine& box : boxes) kinds.push_back({std::move(box), wire, 1});
        }
    }
    return kinds;
}

}  // namespace

Result<Offers> FindMachines(const ModelWalk& walk, const Library& library, const Workload& load,
                            const Wanted& wanted, const std::string& only) {
    if (wanted.tok_s <= 0 && !wanted.budget && !wanted.ttft_s) {
        return MakeError(ErrorCode::kUsage, "nothing is wanted: --want 20tok/s, --budget 8000EUR");
    }
    WEFT_ASSIGN(const std::vector<MachineOnWire> kinds, KindsToTry(walk, library, only));
    Shopping shopping(walk, load, wanted);
    do {
        for (const MachineOnWire& kind : kinds) shopping.Try(kind);
    } while (shopping.WantsAnotherPass());
    return shopping.Take();
}

}  // namespace weft::plan
