#include "plan/train_links.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "plan/weft_rates.h"

namespace weft::plan {
namespace {

// Share of a link's data-sheet bandwidth that collectives reach; their latency is added.
constexpr double kLinkShare = 0.78;
// Largest share of a data sheet's compute that products reach in training.
constexpr double kMostOfPeak = 0.6;

coll::Tier TierOf(const Figure& bandwidth, const Figure& latency) {
    const double share = bandwidth.mark == Mark::kDataSheet ? kLinkShare : 1;
    return {bandwidth.value * share, latency.value, 0};
}

}  // namespace

DeviceRates RatesOf(const Machine& machine) {
    const WeftRates weft = RatesOfKind(machine);
    const double peak = machine.compute.value;
    // A measured or fitted figure is the rate of products already.
    const Mark mark = machine.compute.mark;
    const bool reached = mark == Mark::kMeasured || mark == Mark::kFitted;
    const bool processor = machine.is_processor();
    DeviceRates rates;
    const double tiles = std::min(weft.tiles, kMostOfPeak);
    rates.products = peak * (machine.products ? machine.products->value : (reached ? 1 : tiles));
    rates.attention = machine.attention ? peak * machine.attention->value
                                        : rates.products * weft.attention / weft.tiles;
    rates.memory = machine.sustained_bytes_per_s() * (processor ? 1 : weft.weights);
    rates.in_flight = OutputsInFlight(machine);
    rates.op_s = processor ? 0 : weft.op_s;
    rates.room = machine.memory.value;
    return rates;
}

TrainLinks::TrainLinks(const ClusterSpec& cluster)
    : cluster_(&cluster), alike_(cluster.alike()), ranks_(cluster.ranks()) {
    std::set<std::string_view> seen;
    int first = 0;
    for (size_t host = 0; host < cluster.hosts.size(); ++host) {
        firsts_.push_back(first);
        first += cluster.hosts[host].devices;
        if (seen.insert(cluster.hosts[host].word).second) kinds_.push_back(static_cast<int>(host));
    }
}

std::vector<const Machine*> TrainLinks::KindsOf(int ranks) const {
    std::vector<const Machine*> kinds;
    const int last = HostOf(ranks - 1);
    for (const int host : kinds_) {
        if (host <= last) kinds.push_back(&cluster_->hosts[static_cast<size_t>(host)]);
    }
    return kinds;
}

// (ClusterSpec::PlaceOf walks over all hosts, which takes long where there are thousands.)
Place TrainLinks::PlaceOf(int rank) const {
    const auto host = std::ranges::upper_bound(firsts_, rank) - firsts_.begin() - 1;
    return {static_cast<int>(host), rank - firsts_[static_cast<size_t>(host)]};
}

coll::Tier TrainLinks::LinkOf(int rank, int other) const {
    const LinkTier* link = cluster_->LinkOf(PlaceOf(rank), PlaceOf(other));
    if (link != nullptr) return TierOf(link->bandwidth, link->latency);
    return TierOf(cluster_->wire.bandwidth, cluster_->wire.latency);
}

coll::TierGroup TrainLinks::GroupOf(int first, int count, int stride) const {
    if (count < 2) return {};
    const int last = first + (count - 1) * stride;
    coll::TierGroup group;
    group.ranks = count;
    group.hosts = std::min(HostOf(last) - HostOf(first) + 1, count);
    group.near = group.far = LinkOf(first, last);
    const std::optional<LinkTier>& within = cluster_->hosts[0].within;
    const LinkTier* near = nullptr;
    if (!alike_) {
        near = cluster_->NearLinkOf(first, count, stride);
    } else if (group.per_host() > 1 && within) {
        near = &*within;
    }
    if (near != nullptr) group.near = TierOf(near->bandwidth, near->latency);
    if (group.hosts > 1) {
        group.far.bytes_per_s /= std::max(1, DevicesOf(first) / group.per_host());
    }
    return group;
}

coll::TierGroup TrainLinks::NeighboursOf(int count) const {
    coll::TierGroup worst = GroupOf(0, count, 1);
    if (count < 2) return worst;
    // The pattern of groups repeats at host boundaries, where hosts are alike.
    const int groups = ranks_ / count;
    const int tried = alike_ ? std::min(groups, cluster_->hosts[0].devices) : groups;
    for (int g = 1; g < tried; ++g) {
        const coll::TierGroup group = GroupOf(g * count, count, 1);
        const bool slower =
            group.hosts > worst.hosts ||
            (group.hosts == worst.hosts && group.near.bytes_per_s < worst.near.bytes_per_s);
        if (slower) worst = group;
    }
    return worst;
}

coll::Tier TrainLinks::Between(int rank, int other) const {
    coll::Tier tier = LinkOf(rank, other);
    if (HostOf(rank) != HostOf(other)) tier.bytes_per_s /= DevicesOf(rank);
    return tier;
}

}  // namespace weft::plan
