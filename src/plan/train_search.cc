#include "plan/train_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <set>

#include "plan/search.h"

namespace weft::plan {
namespace {

using program::Recompute;

constexpr size_t kMostKept = 24;
constexpr int kMostTensorRanks = 64;         // most searched; --tp may request more
constexpr int64_t kMostSearchedBatch = 256;  // most micro-batches searched as powers of two
constexpr int64_t kMostMicroBatch = 4096;    // most micro-batches searched

// Highest FLOP/s of a device, as a bound; infinite if its rates were measured.
double MostFlops(const Machine& machine) {
    if (machine.measured) return std::numeric_limits<double>::infinity();
    const DeviceRates rates = RatesOf(machine);
    return std::max(rates.products, rates.attention);
}

std::vector<int> Divisors(int of, int64_t most) {
    std::vector<int> divisors;
    for (int d = 1; d <= of && d <= most; ++d) {
        if (of % d == 0) divisors.push_back(d);
    }
    return divisors;
}

class TrainSearcher {
  public:
    TrainSearcher(TrainWalk& walk, const TrainLinks& links, const TrainSettings& wishes)
        : walk_(walk),
          links_(links),
          wishes_(wishes),
          most_ranks_(links.ranks() / std::max(wishes.dp, 1) / wishes.cp) {}

    Result<TrainPlans> Run() {
        WEFT_TRY(Check());
        const int64_t layers = walk_.model().hyper().layers;
        for (const int tp : TensorRanks()) {
            // With --dp some ranks may stay unused.
            const bool even = most_ranks_ % tp == 0;
            std::vector<int> stages = Divisors(even ? most_ranks_ / tp : 1, layers);
            if (wishes_.pp > 0) stages = {wishes_.pp};
            if (wishes_.pp == 0 && !even && wishes_.dp == 0) continue;
            for (const int pp : stages) AddStages(tp, pp);
        }
        KeepReplicas();
        PredictBest();
        if (!plans_.layouts.empty()) return std::move(plans_);
        if (!plans_.refused.empty()) {
            return Error{ErrorCode::kUnsupported, plans_.refused.front()};
        }
        return MakeError(ErrorCode::kUsage,
                         "no layout is possible: omit some of --tp, --pp, --dp, --micro-batch, "
                         "--grad-accum and --global-batch");
    }

  private:
    struct Candidate {
        TrainPrediction bound;
        bool fits = false;
    };

    Status Check() const {
        const int64_t experts = walk_.model().hyper().moe.experts;
        if (wishes_.ep > std::max<int64_t>(experts, 1)) {
            return MakeError(ErrorCode::kUsage, "--ep {}: {} has {} experts", wishes_.ep,
                             walk_.model().source().name(), experts);
        }
        if (wishes_.ep > most_ranks_) {
            return MakeError(ErrorCode::kUsage,
                             "--ep {}: the expert groups of a replica divide its tensor ranks, at "
                             "most {}",
                             wishes_.ep, most_ranks_);
        }
        const int64_t tp = std::max(wishes_.tp, 1), dp = std::max(wishes_.dp, 1);
        const int64_t pp = std::max(wishes_.pp, 1), each = tp * pp * wishes_.cp;
        const std::string words =
            fmt::format("--tp {} x --pp {}{}", tp, pp,
                        wishes_.cp > 1 ? fmt::format(" x --cp {}", wishes_.cp) : "");
        if (each * dp > links_.ranks()) {
            return MakeError(ErrorCode::kUsage, "{} x --dp {} are {} ranks; {} has {}", words, dp,
                             each * dp, links_.cluster().words, links_.ranks());
        }
        if (wishes_.dp == 0 && links_.ranks() % each != 0) {
            return MakeError(ErrorCode::kUsage,
                             "{} ranks are not a multiple of {}: change one of them, or use fewer "
                             "ranks with --dp",
                             links_.ranks(), words);
        }
        const int64_t batch = wishes_.micro_batch * wishes_.accumulation * wishes_.dp;
        if (wishes_.global_batch > 0 && batch > 0 && batch != wishes_.global_batch) {
            return MakeError(ErrorCode::kUsage,
                             "--micro-batch {} x --grad-accum {} x --dp {} are {} sequences, and "
                             "--global-batch is {}",
                             wishes_.micro_batch, wishes_.accumulation, wishes_.dp, batch,
                             wishes_.global_batch);
        }
        return {};
    }
    std::vector<int> TensorRanks() const {
        if (wishes_.tp > 0) return {wishes_.tp};
        std::vector<int> all = Divisors(most_ranks_, kMostTensorRanks);
        std::erase_if(all, [&](int tp) { return tp % std::max(wishes_.ep, 1) != 0; });
        return all;
    }

    void AddStages(int tp, int pp) {
        TrainCut cut;
        cut.tp = tp;
        cut.pp = pp;
        cut.cp = wishes_.cp;
        cut.dp = wishes_.dp > 0 ? wishes_.dp : most_ranks_ / (tp * pp);
        cut.ep = wishes_.ep;
        if (cut.dp == 0 || cut.ranks() > links_.ranks()) return;
        cut.sequence_parallel = tp > 1 && cut.cp == 1 && wishes_.sequence_parallel.value_or(true);
        const bool whole = walk_.job().update.kind == train::UpdateKind::kMuon;
        if (whole && (tp > 1 || (wishes_.zero > 0 && cut.replicas() > 1))) {
            return Refuse("--optim muon needs whole matrices: --tp 1 and --zero 0");
        }
        const int most_zero = cut.replicas() == 1 || whole ? 0 : pp > 1 ? 1 : 3;
        const int last = wishes_.zero >= 0 ? wishes_.zero : most_zero;
        for (cut.zero = std::max(wishes_.zero, 0); cut.zero <= last; ++cut.zero) {
            for (const Recompute way :
                 {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
                cut.recompute = way;
                if (wishes_.recompute.value_or(way) == way) AddBatches(cut);
            }
        }
    }

    void AddBatches(TrainCut cut) {
        if (wishes_.micro_batch > 0) {
            AddChunks(cut, wishes_.micro_batch);
            return;
        }
        for (int64_t m = 1; m <= kMostSearchedBatch; m *= 2) {
            if (!AddChunks(cut, m)) break;  // more of them do not fit either
        }
        if (cut.pp > 1 || wishes_.global_batch > 0) return;
        const int64_t most = MostThatFits(cut);
        if (most > 0 && !std::has_single_bit(static_cast<uint64_t>(most))) AddChunks(cut, most);
    }

    // The largest micro-batch that fits; 0: none.
    int64_t MostThatFits(TrainCut cut) const {
        const auto fits = [&](int64_t micro_batch) {
            cut.micro_batch = micro_batch;
            const auto bound = BoundTraining(walk_, links_, cut);
            return bound.ok() && bound->fits(kSearchedFill);
        };
        int64_t most = 0, step = 1;
        while (most + step <= kMostMicroBatch && fits(most + step)) {
            most += step;
            step = most;
        }
        if (most == kMostMicroBatch) return most;
        for (step /= 2; step > 0; step /= 2) {
            if (fits(most + step)) most += step;
        }
        return most;
    }

    // Returns false if the cut does not fit or is impossible.
    bool AddChunks(TrainCut cut, int64_t micro_batch) {
        cut.micro_batch = micro_batch;
        cut.accumulation = cut.pp > 1 ? 4 * cut.pp : 1;
        if (wishes_.accumulation > 0) cut.accumulation = wishes_.accumulation;
        if (wishes_.global_batch > 0) {
            const int64_t each = micro_batch * cut.dp;
            if (wishes_.global_batch % each != 0) {
                // (Larger micro-batches do not divide the batch either.)
                Refuse(fmt::format(
                    "micro-batches of {} on {} replicas do not divide --global-batch {}",
                    micro_batch, cut.dp, wishes_.global_batch));
                return false;
            }
            cut.accumulation = wishes_.global_batch / each;
            if (wishes_.accumulation > 0 && wishes_.accumulation != cut.accumulation) return true;
        }
        // If the chunks do not divide the layers, some chunks have one more.
        const bool interleaved = cut.pp > 1 && cut.accumulation % cut.pp == 0;
        const int64_t most = interleaved ? walk_.model().hyper().layers / cut.pp : 1;
        int first = std::max(wishes_.virtual_stages, 1);
        int last =
            wishes_.virtual_stages > 0 ? first : static_cast<int>(std::max<int64_t>(most, 1));
        bool fits = false;
        for (cut.virtual_stages = first; cut.virtual_stages <= last; ++cut.virtual_stages) {
            fits = AddBound(cut) || fits;
        }
        return fits || wishes_.micro_batch > 0;
    }

    bool AddBound(const TrainCut& cut) {
        ++plans_.bounded;
        auto bound = BoundTraining(walk_, links_, cut);
        if (!bound.ok()) {
            Refuse(bound.error().message);
            return false;
        }
        const bool fits = bound->fits(wishes_.micro_batch > 0 ? 1 : kSearchedFill);
        candidates_.push_back({*std::move(bound), fits});
        return fits;
    }

    // With --zero, some layout may shard the model over replicas; then layouts with one replica are
    // dropped, because they do not do what was requested.
    void KeepReplicas() {
        const auto shared = [](const Candidate& c) { return c.bound.cut.replicas() > 1; };
        if (wishes_.zero < 2 || std::ranges::none_of(candidates_, shared)) return;
        std::erase_if(candidates_, [&](const Candidate& c) { return !shared(c); });
    }

    void Refuse(const std::string& words) {
        if (seen_.insert(words).second) plans_.refused.push_back(words);
    }

    void PredictBest() {
        std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
            if (a.bound.is_roomy() != b.bound.is_roomy()) return a.bound.is_roomy();
            if (a.fits != b.fits) return a.fits;
            return a.fits ? a.bound.tokens_per_s > b.bound.tokens_per_s
                          : a.bound.worst().total() < b.bound.worst().total();
        });
        std::vector<TrainPrediction>& best = plans_.layouts;
        for (const auto& [bound, fits] : candidates_) {
            const bool full = best.size() >= kMostKept;
            const bool roomier = bound.is_roomy() && full && !best.back().is_roomy();
            if (full && !roomier && (!fits || bound.tokens_per_s < best.back().tokens_per_s)) break;
            auto predicted = PredictTraining(walk_, links_, bound.cut);
            ++plans_.predicted;
            if (!predicted.ok()) {
                Refuse(predicted.error().message);
                continue;
            }
            best.insert(std::ranges::upper_bound(best, *predicted, &TrainPrediction::IsBetterThan),
                        *predicted);
            if (best.size() > kMostKept) best.pop_back();
        }
    }

    TrainWalk& walk_;
    const TrainLinks& links_;
    const TrainSettings& wishes_;
    const int most_ranks_;  // of a replica
    std::vector<Candidate> candidates_;
    std::set<std::string> seen_;
    TrainPlans plans_;
};

}  // namespace

Result<TrainPlans> SearchTraining(TrainWalk& walk, const TrainLinks& links,
                                  const TrainSettings& wishes) {
    return TrainSearcher(walk, links, wishes).Run();
}

Result<TrainPlans> SearchTrainingOn(TrainWalk& walk, const ClusterSpec& cluster,
                                    const TrainSettings& wishes) {
    TrainPlans all;
    // Searches a part as if the other hosts did not exist.
    const auto search = [&](const std::vector<int>& hosts) -> Result<TrainPlans> {
        const bool whole = hosts.size() == cluster.hosts.size();
        const ClusterSpec part = whole ? cluster : cluster.Part(hosts);
        WEFT_ASSIGN(TrainPlans plans, SearchTraining(walk, TrainLinks(part), wishes));
        for (TrainPrediction& p : plans.layouts) {
            if (!whole) p.used.assign(hosts.begin(), hosts.begin() + p.hosts);
        }
        return plans;
    };
    const auto add = [&](TrainPlans plans) {
        std::ranges::move(plans.layouts, std::back_inserter(all.layouts));
        std::ranges::move(plans.refused, std::back_inserter(all.refused));
        all.bounded += plans.bounded;
        all.predicted += plans.predicted;
    };
    std::optional<Error> first_error;
    for (const std::vector<int>& hosts : PartsOf(cluster)) {
        auto plans = search(hosts);
        if (!plans.ok() && !first_error) first_error = plans.error();
        if (plans.ok()) add(*std::move(plans));
    }
    if (all.layouts.empty()) return *first_error;
    TrainPrediction best = all.layouts[0];
    const Machine& machine = cluster.hosts[0];
    for (size_t count = cluster.alike() ? cluster.hosts.size() / 2 : 0; count > 0; count /= 2) {
        // Stop if half of the hosts at their best rate cannot beat all hosts.
        const double reached = best.share_of_peak * machine.compute.value;
        if (!best.fits() || 2 * reached > MostFlops(machine)) break;
        std::vector<int> hosts(count);
        std::iota(hosts.begin(), hosts.end(), 0);
        auto plans = search(hosts);
        if (!plans.ok() || !plans->layouts[0].IsBetterThan(best)) break;
        best = plans->layouts[0];
        add(*std::move(plans));
    }
    std::ranges::stable_sort(all.layouts, &TrainPrediction::IsBetterThan);
    all.layouts.resize(std::min(all.layouts.size(), kMostKept));
    return all;
}

}  // namespace weft::plan
