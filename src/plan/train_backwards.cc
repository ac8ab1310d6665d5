#include "plan/train_backwards.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/backwards.h"

namespace weft::plan {
namespace {

constexpr size_t kMostNearestTraining = 5;

// The fewest hosts of a kind that do it, into `offers`.
void TryTraining(TrainWalk& walk, const TrainWishes& wishes, const TrainWanted& wanted,
                 const MachineOnWire& kind, TrainOffers& offers) {
    std::optional<TrainOffer> nearest;
    for (int count = 1; count <= wanted.most_hosts; count *= 2) {
        const Cluster cluster = kind.Times(count);
        const std::optional<double> price = cluster.price();
        if (!price || (wanted.budget && *price > *wanted.budget)) break;
        const auto found = SearchTraining(walk, TrainLinks(cluster), wishes);
        if (!found.ok() || found->layouts.empty() || !found->layouts[0].fits()) continue;
        const TrainPrediction& best = found->layouts[0];
        TrainOffer offer{cluster.words, best, TrainingSeconds(best, wanted.sequences), *price,
                         PriceIsGuessed(cluster)};
        if (offer.seconds <= wanted.within_s) {
            offers.enough.push_back(std::move(offer));
            return;
        }
        if (!nearest || offer.seconds < nearest->seconds) nearest = std::move(offer);
    }
    if (nearest) offers.nearest.push_back(std::move(*nearest));
}

}  // namespace

double TrainingSeconds(const TrainPrediction& prediction, int64_t sequences) {
    const double updates =
        std::ceil(static_cast<double>(sequences) / static_cast<double>(prediction.cut.sequences()));
    return updates * prediction.update_s / prediction.kept_share;
}

Result<TrainOffers> FindTrainingMachines(TrainWalk& walk, const Library& library,
                                         const TrainWishes& wishes, const TrainWanted& wanted,
                                         const std::string& only) {
    WEFT_ASSIGN(const std::vector<MachineOnWire> kinds, KindsToTry(library, only));
    TrainOffers offers;
    std::string last;
    for (const MachineOnWire& kind : kinds) {
        // Another wire makes the list longer, and training seldom cheaper.
        if (std::exchange(last, kind.machine.word) == kind.machine.word) continue;
        TryTraining(walk, wishes, wanted, kind, offers);
    }
    std::ranges::stable_sort(offers.enough, {}, &TrainOffer::price);
    std::ranges::stable_sort(offers.nearest, {}, &TrainOffer::seconds);
    if (!offers.enough.empty()) offers.nearest.clear();
    offers.nearest.resize(std::min(offers.nearest.size(), kMostNearestTraining));
    return offers;
}

}  // namespace weft::plan
