#include "plan/train_search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "plan/search.h"

namespace weft::plan {
namespace {

using program::Recompute;

constexpr int kMostTensorRanks = 64;         // most searched; --tp may ask for more
constexpr int64_t kMostSearchedBatch = 256;  // most micro-batches searched

struct Candidate {
    TrainCut cut;
    double tokens_per_s = 0;  // upper bound
    bool fits = false;
    double worst = 0;
};

bool Better(const TrainPrediction& a, const TrainPrediction& b) {
    if (a.fits() != b.fits()) return a.fits();
    if (!a.fits()) return a.worst().total() < b.worst().total();
    return a.tokens_per_s > b.tokens_per_s;
}

class TrainSearcher {
  public:
    TrainSearcher(TrainWalk& walk, const TrainLinks& links, const TrainWishes& wishes)
        : walk_(walk), links_(links), wishes_(wishes) {}

    Result<TrainPlans> Run() {
        WEFT_TRY(Check());
        for (const int tp : TensorRanks()) {
            for (const int pp : Stages(tp)) AddStages(tp, pp);
        }
        if (candidates_.empty()) return NothingLeft();
        KeepShares();
        WalkBest();
        if (plans_.layouts.empty()) return NothingLeft();
        return std::move(plans_);
    }

  private:
    Status Check() const {
        WEFT_TRY(CheckExperts());
        const int64_t tp = std::max(wishes_.tp, 1), dp = std::max(wishes_.dp, 1);
        const int64_t pp = std::max(wishes_.pp, 1);
        if (tp * pp * dp > links_.ranks()) {
            return MakeError(ErrorCode::kUsage,
                             "--tp {} x --pp {} x --dp {} are {} ranks; {} has {}", tp, pp, dp,
                             tp * pp * dp, links_.cluster().words, links_.ranks());
        }
        if (wishes_.dp == 0 && links_.ranks() % (tp * pp) != 0) {
            return MakeError(ErrorCode::kUsage,
                             "{} ranks are no multiple of --tp {} x --pp {}: say --dp, or change "
                             "the layout",
                             links_.ranks(), tp, pp);
        }
        const bool three = wishes_.global_batch > 0 && wishes_.micro_batch > 0 &&
                           wishes_.accumulation > 0 && wishes_.dp > 0;
        const int64_t batch = wishes_.micro_batch * wishes_.accumulation * wishes_.dp;
        if (three && batch != wishes_.global_batch) {
            return MakeError(ErrorCode::kUsage,
                             "--micro-batch {} x --grad-accum {} x --dp {} are {} sequences, and "
                             "--global-batch is {}",
                             wishes_.micro_batch, wishes_.accumulation, wishes_.dp, batch,
                             wishes_.global_batch);
        }
        return {};
    }

    Status CheckExperts() const {
        const int64_t experts = walk_.model().hyper().moe.experts;
        if (wishes_.ep > std::max<int64_t>(experts, 1)) {
            return MakeError(ErrorCode::kUsage, "--ep {}: {} has {} experts", wishes_.ep,
                             walk_.model().source().name(), experts);
        }
        if (wishes_.ep <= ranks()) return {};
        return MakeError(ErrorCode::kUsage,
                         "--ep {}: expert groups are of a replica's tensor ranks, of which there "
                         "are {} at most",
                         wishes_.ep, ranks());
    }

    std::vector<int> Divisors(int of, int64_t most) const {
        std::vector<int> divisors;
        for (int d = 1; d <= of && d <= most; ++d) {
            if (of % d == 0) divisors.push_back(d);
        }
        return divisors;
    }
    // Most ranks of a replica.
    int ranks() const { return links_.ranks() / std::max(wishes_.dp, 1); }

    std::vector<int> TensorRanks() const {
        if (wishes_.tp > 0) return {wishes_.tp};
        const int64_t least = std::max(wishes_.ep, 1);
        std::vector<int> all = Divisors(ranks(), kMostTensorRanks);
        std::erase_if(all, [&](int tp) { return tp % least != 0; });
        return all;
    }
    std::vector<int> Stages(int tp) const {
        if (wishes_.pp > 0) return {wishes_.pp};
        // With --dp some ranks may stay unused.
        if (ranks() % tp != 0) return wishes_.dp > 0 ? std::vector<int>{1} : std::vector<int>{};
        return Divisors(ranks() / tp, walk_.layers());
    }

    void AddStages(int tp, int pp) {
        TrainCut cut;
        cut.tp = tp;
        cut.pp = pp;
        cut.dp = wishes_.dp > 0 ? wishes_.dp : ranks() / (tp * pp);
        cut.ep = wishes_.ep;
        if (cut.ranks() > links_.ranks()) return;
        // With --tp: the default of `weft train`; else with shares of rows.
        cut.sequence_parallel = tp > 1 && wishes_.sequence_parallel.value_or(wishes_.tp == 0);
        std::vector<int> zeros = {0};
        if (wishes_.zero >= 0) {
            zeros = {wishes_.zero};
        } else if (cut.dp > 1) {
            zeros = pp > 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2, 3};
        }
        std::vector<Recompute> ways = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
        if (wishes_.recompute) ways = {*wishes_.recompute};
        for (const int zero : zeros) {
            for (const Recompute way : ways) {
                cut.zero = zero;
                cut.recompute = way;
                AddBatches(cut);
            }
        }
    }

    void AddBatches(TrainCut cut) {
        if (wishes_.micro_batch > 0) {
            AddTurns(cut, wishes_.micro_batch);
            return;
        }
        for (int64_t m = 1; m <= kMostSearchedBatch; m *= 2) {
            if (!AddTurns(cut, m)) break;  // more of them do not fit either
        }
        if (cut.pp > 1 || wishes_.global_batch > 0) return;
        const auto most = MostThatFits(walk_, links_, cut, wishes_.fill);
        if (most.ok() && !std::has_single_bit(static_cast<uint64_t>(*most)) && *most > 0) {
            AddTurns(cut, *most);
        }
    }

    // False: does not fit, or is impossible.
    bool AddTurns(TrainCut cut, int64_t micro_batch) {
        cut.micro_batch = micro_batch;
        cut.accumulation = wishes_.accumulation > 0 ? wishes_.accumulation
                           : cut.pp > 1             ? 4 * cut.pp
                                                    : 1;
        if (wishes_.global_batch > 0) {
            const int64_t each = micro_batch * cut.dp;
            if (wishes_.global_batch % each != 0) {
                // (A larger micro-batch does not divide it either.)
                Refuse(
                    fmt::format("micro-batches of {} on {} replicas don't make --global-batch "
                                "{}",
                                micro_batch, cut.dp, wishes_.global_batch));
                return false;
            }
            const int64_t asked = wishes_.accumulation;
            cut.accumulation = wishes_.global_batch / each;
            if (asked > 0 && asked != cut.accumulation) return true;
        }
        bool fits = false;
        for (const int chunks : Turns(cut)) {
            cut.virtual_stages = chunks;
            fits = Bound(cut) || fits;
        }
        return fits || wishes_.micro_batch > 0;
    }

    std::vector<int> Turns(const TrainCut& cut) const {
        if (wishes_.virtual_stages > 0) return {wishes_.virtual_stages};
        std::vector<int> all = {1};
        if (cut.pp == 1 || cut.accumulation % cut.pp != 0) return all;
        // If the chunks do not divide the layers, some chunks have one more.
        for (int chunks = 2; cut.pp * chunks <= walk_.layers(); ++chunks) all.push_back(chunks);
        return all;
    }

    bool Bound(const TrainCut& cut) {
        ++plans_.bounded;
        const auto bound = BoundTraining(walk_, links_, cut);
        if (!bound.ok()) {
            Refuse(bound.error().message);
            return false;
        }
        const double room = links_.device().room;
        const double allowed = wishes_.micro_batch > 0 ? room : wishes_.fill * room;
        Candidate candidate{cut, 0, bound->worst <= allowed, bound->worst / room};
        candidate.tokens_per_s =
            static_cast<double>(cut.sequences() * walk_.job().sequence) / bound->update_s;
        candidates_.push_back(candidate);
        return candidate.fits;
    }

    // With --zero, some layout may shard the model over replicas; then layouts with one replica are
    // dropped, because they do not do what was asked.
    void KeepShares() {
        const auto shared = [](const Candidate& c) { return c.cut.dp > 1; };
        if (wishes_.zero < 2 || std::ranges::none_of(candidates_, shared)) return;
        std::erase_if(candidates_, [&](const Candidate& c) { return !shared(c); });
    }

    void Refuse(const std::string& words) {
        if (seen_.insert(words).second) plans_.refused.push_back(words);
    }

    Error NothingLeft() const {
        if (!plans_.refused.empty()) {
            return {ErrorCode::kUnsupported, plans_.refused.front()};
        }
        return {ErrorCode::kUsage, "no layout is left: fewer of --tp, --pp, --dp and the batch"};
    }

    void WalkBest() {
        std::ranges::sort(candidates_, [](const Candidate& a, const Candidate& b) {
            if (a.fits != b.fits) return a.fits;
            return a.fits ? a.tokens_per_s > b.tokens_per_s : a.worst < b.worst;
        });
        std::vector<TrainPrediction>& best = plans_.layouts;
        for (const Candidate& candidate : candidates_) {
            const bool full = best.size() >= kMostKept;
            if (full && (!candidate.fits || candidate.tokens_per_s < best.back().tokens_per_s)) {
                break;
            }
            auto predicted = PredictTraining(walk_, links_, candidate.cut);
            ++plans_.predicted;
            if (!predicted.ok()) {
                Refuse(predicted.error().message);
                continue;
            }
            best.insert(std::ranges::upper_bound(best, *predicted, Better), *predicted);
            if (best.size() > kMostKept) best.pop_back();
        }
    }

    TrainWalk& walk_;
    const TrainLinks& links_;
    const TrainWishes& wishes_;
    std::vector<Candidate> candidates_;
    std::set<std::string> seen_;
    TrainPlans plans_;
};

// Searches parts of a cluster, each as if the other hosts did not exist.
class PartsSearcher {
  public:
    PartsSearcher(TrainWalk& walk, const ClusterSpec& cluster, const TrainWishes& wishes)
        : walk_(walk), cluster_(cluster), wishes_(wishes) {}

    Result<TrainPlans> Run() {
        for (const std::vector<int>& hosts : PartsOf(cluster_)) {
            auto plans = Search(hosts);
            if (plans.ok()) Add(*std::move(plans));
        }
        if (all_.layouts.empty()) return *first_error_;
        if (cluster_.alike()) TryFewer();
        std::ranges::stable_sort(all_.layouts, Better);
        all_.layouts.resize(std::min(all_.layouts.size(), kMostKept));
        return std::move(all_);
    }

  private:
    Result<TrainPlans> Search(const std::vector<int>& hosts) {
        const bool whole = hosts.size() == cluster_.hosts.size();
        const ClusterSpec part = whole ? cluster_ : cluster_.Part(hosts);
        auto plans = SearchTraining(walk_, TrainLinks(part), wishes_);
        if (!plans.ok() && !first_error_) first_error_ = plans.error();
        if (!plans.ok() || whole) return plans;
        for (TrainPrediction& p : plans->layouts) {
            p.used.assign(hosts.begin(), hosts.begin() + p.hosts);
        }
        return plans;
    }

    void Add(TrainPlans plans) {
        const auto append = [](auto& to, auto& from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        append(all_.layouts, plans.layouts);
        append(all_.refused, plans.refused);
        all_.bounded += plans.bounded;
        all_.predicted += plans.predicted;
    }

    void TryFewer() {
        double fastest = all_.layouts[0].fits() ? all_.layouts[0].tokens_per_s : 0;
        double share = all_.layouts[0].share_of_peak;
        for (size_t count = cluster_.hosts.size() / 2; count > 0; count /= 2) {
            // Skip if half of the hosts at their best rate cannot beat all hosts.
            if (fastest == 0 || 2 * share > MostShare()) return;
            std::vector<int> hosts(count);
            std::iota(hosts.begin(), hosts.end(), 0);
            auto plans = Search(hosts);
            if (!plans.ok()) return;
            const TrainPrediction& best = plans->layouts[0];
            if (!best.fits() || best.tokens_per_s <= fastest) return;
            fastest = best.tokens_per_s;
            share = best.share_of_peak;
            Add(*std::move(plans));
        }
    }
    // The largest share of peak compute that a device reaches.
    double MostShare() const {
        const Machine& machine = cluster_.hosts[0];
        const DeviceRates rates = RatesOf(machine);
        if (machine.measured) return std::numeric_limits<double>::infinity();
        return std::max(rates.products, rates.attention) / machine.compute.value;
    }

    TrainWalk& walk_;
    const ClusterSpec& cluster_;
    const TrainWishes& wishes_;
    TrainPlans all_;
    std::optional<Error> first_error_;
};

}  // namespace

Result<TrainPlans> SearchTraining(TrainWalk& walk, const TrainLinks& links,
                                  const TrainWishes& wishes) {
    return TrainSearcher(walk, links, wishes).Run();
}

Result<TrainPlans> SearchTrainingOn(TrainWalk& walk, const ClusterSpec& cluster,
                                    const TrainWishes& wishes) {
    return PartsSearcher(walk, cluster, wishes).Run();
}

}  // namespace weft::plan
