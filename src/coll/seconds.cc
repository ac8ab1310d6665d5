#include "coll/seconds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "coll/hosts.h"

namespace weft::coll {
namespace {

// Each rank sends `bytes` to every other at the same time.
double ToOthers(const TierGroup& group, double bytes) {
    const double n = group.ranks, p = group.per_host();
    const auto over = [&](const Tier& tier, double messages, double sent) {
        return messages == 0
                   ? 0.0
                   : tier.latency_s + messages * tier.per_message_s + sent / tier.bytes_per_s;
    };
    const double near = over(group.near, p - 1, (p - 1) * bytes);
    if (group.hosts == 1) return near;
    // The host's link carries the messages of each of its ranks to each rank of other hosts.
    return std::max(near, over(group.far, n - p, p * (n - p) * bytes));
}

// A message of `bytes` to the next rank: the slowest link of the ring decides.
double RingStepSeconds(const TierGroup& group, double bytes) {
    double most = 0;
    if (group.per_host() > 1) most = MessageSeconds(group.near, bytes);
    return group.hosts > 1 ? std::max(most, MessageSeconds(group.far, bytes)) : most;
}

double OneShotSeconds(const TierGroup& group, double bytes) {
    return ToOthers(group, bytes);
}

double TwoShotSeconds(const TierGroup& group, double bytes) {
    return 2 * ToOthers(group, bytes / group.ranks);
}

double RingSeconds(const TierGroup& group, double bytes) {
    return 2 * (group.ranks - 1) * RingStepSeconds(group, bytes / group.ranks);
}

// Partners at distance 1, 2, 4, ...: on the same host while the distance is less than its number of
// ranks; after that, all of a host's ranks use its link at once.
double RecursiveDoublingSeconds(const TierGroup& group, double bytes) {
    const int pairs = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.ranks)));
    const double shared = group.per_host() * bytes;
    const auto exchange = [&](int distance) {
        return distance < group.per_host() ? MessageSeconds(group.near, bytes)
                                           : MessageSeconds(group.far, shared);
    };
    double seconds = 0;
    for (int distance = 1; distance < pairs; distance *= 2) seconds += exchange(distance);
    // Ranks beyond the largest power of two send once and receive once.
    return pairs == group.ranks ? seconds : seconds + 2 * exchange(pairs);
}

double HierarchicalSeconds(const TierGroup& group, double bytes) {
    const TierGroup leaders{group.hosts, group.hosts, group.near, group.far};
    const TierGroup host{group.per_host(), 1, group.near, group.far};
    return 2 * ToOthers(host, bytes) + OneShotSeconds(leaders, bytes);
}

// A part travels to each other host once, over the link that the host's ranks share, while earlier
// parts are distributed within the host.
double GatherByHostsSeconds(const TierGroup& group, double bytes) {
    const double part = bytes / group.ranks, p = group.per_host(), others = group.hosts - 1;
    const TierGroup host{group.per_host(), 1, group.near, group.far};
    const double pass_on = ToOthers(host, part);
    if (others == 0) return pass_on;
    const double across = others * (group.far.per_message_s + p * part / group.far.bytes_per_s);
    // Each rank distributes as many parts as there are other hosts.
    return group.far.latency_s + std::max(across + pass_on, across / others + others * pass_on);
}

// Parts follow each other through the hosts: the busiest host's link is idle only until the first
// part reaches the last host but one.
double ChainSeconds(const TierGroup& group, double bytes, double sum_units) {
    const double n = group.ranks, p = group.per_host(), hosts = group.hosts;
    const TierGroup host{group.per_host(), 1, group.near, group.far};
    const double within = ToOthers(host, bytes / p);
    if (group.hosts == 1) return within;
    const double sent = ChainLoad(n, hosts, sum_units) * bytes;
    const double first = (hosts - 2) * sum_units * bytes / n;
    const double across = (sent + first) / group.far.bytes_per_s + n / p * group.far.per_message_s;
    return hosts * group.far.latency_s + std::max(across, within);
}

Algorithm ChoiceOf(const TierGroup& group, Collective collective, Algorithm asked, double bytes) {
    const GroupShape shape{group.ranks, group.hosts, group.hosts > 1};
    const auto size = static_cast<size_t>(std::min(bytes, 0x1p62));
    return Tuning::BuiltIn(shape).For(collective, size, {asked}).algorithm;
}

}  // namespace

double MessageSeconds(const Tier& tier, double bytes) {
    return tier.latency_s + tier.per_message_s + bytes / tier.bytes_per_s;
}

double AllReduceSeconds(const TierGroup& group, Algorithm algorithm, double bytes) {
    if (group.ranks < 2) return 0;
    switch (algorithm) {
        case Algorithm::kAuto:
            return AllReduceSeconds(
                group, ChoiceOf(group, Collective::kAllReduce, algorithm, bytes), bytes);
        case Algorithm::kOneShot: return OneShotSeconds(group, bytes);
        case Algorithm::kTwoShot: return TwoShotSeconds(group, bytes);
        case Algorithm::kRing: return RingSeconds(group, bytes);
        case Algorithm::kRecursiveDoubling: return RecursiveDoublingSeconds(group, bytes);
        case Algorithm::kHierarchical: return HierarchicalSeconds(group, bytes);
    }
    return 0;
}

double AllGatherSeconds(const TierGroup& group, double bytes, Algorithm algorithm) {
    if (group.ranks < 2) return 0;
    const Algorithm by = ChoiceOf(group, Collective::kAllGather, algorithm, bytes);
    return by == Algorithm::kHierarchical ? GatherByHostsSeconds(group, bytes)
                                          : ToOthers(group, bytes / group.ranks);
}

double ReduceScatterSeconds(const TierGroup& group, double bytes, Algorithm algorithm,
                            double value_bytes) {
    if (group.ranks < 2) return 0;
    const double sum_units = sizeof(float) / value_bytes;
    const bool pays =
        ChainLoad(group.ranks, group.hosts, sum_units) < StraightLoad(group.ranks, group.hosts);
    const Algorithm by = ChoiceOf(group, Collective::kReduceScatter, algorithm, bytes);
    return by == Algorithm::kHierarchical && (pays || algorithm == by)
               ? ChainSeconds(group, bytes, sum_units)
               : ToOthers(group, bytes / group.ranks);
}

}  // namespace weft::coll
