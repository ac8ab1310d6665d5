#include "plan/train_links.h"

#include <algorithm>

namespace weft::plan {
namespace {

coll::Tier TierOf(const Figure& bandwidth, const Figure& latency) {
    const double share = bandwidth.mark == Mark::kDataSheet ? kLinkShare : 1;
    return {bandwidth.value * share, latency.value, 0};
}

}  // namespace

TrainLinks::TrainLinks(const ClusterSpec& cluster)
    : cluster_(&cluster),
      alike_(cluster.alike()),
      ranks_(cluster.ranks()),
      device_(RatesOf(cluster.hosts[0])) {
    if (alike_) return;
    for (const Machine& host : cluster.hosts) {
        const DeviceRates other = RatesOf(host);
        for (double DeviceRates::*figure : {&DeviceRates::products, &DeviceRates::attention,
                                            &DeviceRates::memory, &DeviceRates::room}) {
            device_.*figure = std::min(device_.*figure, other.*figure);
        }
        device_.in_flight = std::max(device_.in_flight, other.in_flight);
        device_.op_s = std::max(device_.op_s, other.op_s);
    }
}

Place TrainLinks::PlaceOf(int rank) const {
    if (!alike_) return cluster_->PlaceOf(rank);
    const int devices = cluster_->hosts[0].devices;
    return {rank / devices, rank % devices};
}

int TrainLinks::HostOf(int rank) const {
    return PlaceOf(rank).host;
}

coll::Tier TrainLinks::Joins(int rank, int other) const {
    const Place one = PlaceOf(rank), two = PlaceOf(other);
    const LinkTier* link = cluster_->LinkOf(one, two);
    if (link == nullptr) return TierOf(cluster_->wire.bandwidth, cluster_->wire.latency);
    return TierOf(link->bandwidth, link->latency);
}

coll::TierGroup TrainLinks::GroupOf(int first, int count, int stride) const {
    if (count < 2) return {};
    const int last = first + (count - 1) * stride;
    coll::TierGroup group;
    group.ranks = count;
    group.hosts = std::min(HostOf(last) - HostOf(first) + 1, count);
    group.far = Joins(first, last);
    group.near = group.far;
    const int second = first + (group.per_host() - 1) * stride;
    if (!alike_) {
        const LinkTier* near = cluster_->NearLinkOf(first, count, stride);
        if (near != nullptr) group.near = TierOf(near->bandwidth, near->latency);
    } else if (group.per_host() > 1 && second <= last && HostOf(second) == HostOf(first)) {
        group.near = Joins(first, second);
    } else if (group.per_host() > 1 && HostOf(last) - HostOf(last - stride) == 0) {
        group.near = Joins(last - stride, last);
    }
    if (group.hosts > 1) {
        const int devices = cluster_->hosts[static_cast<size_t>(HostOf(first))].devices;
        group.far.bytes_per_s /= std::max(1, devices / group.per_host());
    }
    return group;
}

coll::TierGroup TrainLinks::NeighboursOf(int count) const {
    coll::TierGroup worst = GroupOf(0, count, 1);
    if (count < 2) return worst;
    // The pattern of groups repeats at host boundaries, where hosts are alike.
    const int devices = cluster_->hosts[0].devices;
    const int tried = std::min(ranks_ / count, alike_ ? devices : ranks_ / count);
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
    coll::Tier tier = Joins(rank, other);
    if (HostOf(rank) != HostOf(other)) {
        tier.bytes_per_s /= cluster_->hosts[static_cast<size_t>(HostOf(rank))].devices;
    }
    return tier;
}

}  // namespace weft::plan
