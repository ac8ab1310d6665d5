#include "plan/train_backwards.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/backwards.h"

namespace weft::plan {
namespace {

constexpr size_t kMostNearestTraining = 5;

class TrainShopping {
  public:
    TrainShopping(TrainWalk& walk, const TrainWishes& wishes, const TrainWanted& wanted)
        : walk_(walk), wishes_(wishes), wanted_(wanted) {}

    // Finds the fewest hosts of a kind that are enough. nearest: also tries kinds whose bound is
    // too slow.
    void Try(const MachineOnWire& kind, bool nearest) {
        std::optional<TrainOffer> last;
        for (int count = 1; count <= wanted_.most_hosts; count *= 2) {
            const ClusterSpec cluster = kind.Times(count);
            const std::optional<double> price = cluster.price();
            if (!price || (wanted_.budget && *price > *wanted_.budget)) break;
            if (!nearest && LeastSeconds(cluster) > wanted_.within_s) continue;
            const auto found = SearchTraining(walk_, TrainLinks(cluster), wishes_);
            if (!found.ok() || found->layouts.empty() || !found->layouts[0].fits()) continue;
            const TrainPrediction& best = found->layouts[0];
            flops_ = best.flops / static_cast<double>(best.cut.sequences());
            TrainOffer offer{cluster.words, best, TrainingSeconds(best, wanted_.sequences), *price,
                             PriceIsGuessed(cluster)};
            if (offer.seconds <= wanted_.within_s) {
                offers_.enough.push_back(std::move(offer));
                return;
            }
            if (!last || offer.seconds < last->seconds) last = std::move(offer);
        }
        if (last) offers_.nearest.push_back(std::move(*last));
    }
    TrainOffers& offers() { return offers_; }

  private:
    // Lower bound: all products at the device's best rate, and nothing else; 0: unknown.
    double LeastSeconds(const ClusterSpec& cluster) const {
        const Machine& machine = cluster.hosts[0];
        const DeviceRates rates = RatesOf(machine);
        const double best = std::max(rates.products, rates.attention);
        if (machine.measured) return 0;
        return static_cast<double>(wanted_.sequences) * flops_ / (best * cluster.ranks());
    }

    TrainWalk& walk_;
    const TrainWishes& wishes_;
    const TrainWanted& wanted_;
    TrainOffers offers_;
    double flops_ = 0;  // per sequence; 0: no prediction yet
};

}  // namespace

double TrainingSeconds(const TrainPrediction& prediction, int64_t sequences) {
    const double updates =
        std::ceil(static_cast<double>(sequences) / static_cast<double>(prediction.cut.sequences()));
    return updates * prediction.update_s;
}

Result<TrainOffers> FindTrainingMachines(TrainWalk& walk, const Library& library,
                                         const TrainWishes& wishes, const TrainWanted& wanted,
                                         const std::string& only) {
    WEFT_ASSIGN(const std::vector<MachineOnWire> kinds, KindsToTry(library, only));
    TrainShopping shopping(walk, wishes, wanted);
    for (const bool nearest : {false, true}) {
        if (nearest && !shopping.offers().enough.empty()) break;
        shopping.offers() = {};
        std::string last;
        for (const MachineOnWire& kind : kinds) {
            // A second wire makes the list longer and training seldom cheaper.
            if (std::exchange(last, kind.machine.word) == kind.machine.word) continue;
            shopping.Try(kind, nearest);
        }
    }
    TrainOffers offers = std::move(shopping.offers());
    std::ranges::stable_sort(offers.enough, {}, &TrainOffer::price);
    std::ranges::stable_sort(offers.nearest, {}, &TrainOffer::seconds);
    if (!offers.enough.empty()) offers.nearest.clear();
    offers.nearest.resize(std::min(offers.nearest.size(), kMostNearestTraining));
    return offers;
}

}  // namespace weft::plan
