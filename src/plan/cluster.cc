// Ranks on hosts, and what joins them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/machine.h"

namespace weft::plan {

int Cluster::ranks() const {
    int ranks = 0;
    for (const Machine& host : hosts) ranks += host.devices;
    return ranks;
}

Place Cluster::PlaceOf(int rank) const {
    if (alike()) return {rank / hosts[0].devices, rank % hosts[0].devices, 0};
    Place place{0, rank, 0};
    for (auto host = hosts.begin(); place.device >= host->devices; ++host) {
        place.device -= host->devices;
        ++place.host;
        if (host[1].word != host->word) place.run = place.host;
    }
    return place;
}

int Cluster::host_of(int rank) const {
    return PlaceOf(rank).host;
}

bool Cluster::alike() const {
    return std::ranges::all_of(hosts,
                               [&](const Machine& host) { return host.word == hosts[0].word; });
}

std::optional<double> Cluster::price() const {
    double price = 0;
    for (const Machine& host : hosts) {
        if (!host.price) return std::nullopt;
        price += host.price->value;
    }
    if (hosts.size() < 2) return price;
    if (!wire.price) return std::nullopt;
    return price + wire.price->value * static_cast<double>(hosts.size());
}

const LinkTier* Cluster::LinkOf(Place one, Place other) const {
    const Place low = one.host < other.host ? one : other;
    const Place high = one.host < other.host ? other : one;
    const Machine& machine = hosts[static_cast<size_t>(low.host)];
    if (low.host == high.host) {
        for (const LinkTier& tier : machine.within) {
            if (low.device / tier.ranks == high.device / tier.ranks) return &tier;
        }
        // Tiers join all devices of a host, but perhaps in groups that begin elsewhere.
        return machine.within.empty() ? nullptr : &machine.within.back();
    }
    // Islands are of one run of hosts, and begin with it.
    if (!machine.island || low.run != high.run) return nullptr;
    const auto island = [&](Place place) {
        const int rank = (place.host - place.run) * machine.devices + place.device;
        return rank / machine.island->ranks;
    };
    return island(low) == island(high) ? &*machine.island : nullptr;
}

coll::Tier Cluster::Between(int rank, int other) const {
    // A rank and itself: nothing is sent.
    if (rank == other) return {std::numeric_limits<double>::infinity(), 0, 0};
    const LinkTier* link = LinkOf(PlaceOf(rank), PlaceOf(other));
    return link != nullptr ? link->AsTier() : wire.AsTier();
}

const LinkTier* Cluster::NearLinkOf(int first, int count, int stride) const {
    const LinkTier* slowest = nullptr;
    int most = 1;
    const int hosts_of_group = host_of(first + (count - 1) * stride) - host_of(first) + 1;
    const int each = (count + hosts_of_group - 1) / hosts_of_group;
    Place at = PlaceOf(first);
    for (int left = count; left > 0; ++at.host) {
        const int devices = hosts[static_cast<size_t>(at.host)].devices;
        const int its = std::min(left, std::max(0, devices - at.device + stride - 1) / stride);
        if (its > 1 && its >= most) {
            // As far from each other as ranks of a host are.
            const int across = std::max(1, std::min(its, each) - 1);
            const LinkTier* link = LinkOf(at, {at.host, at.device + across * stride, 0});
            const bool slower = slowest == nullptr || its > most ||
                                link->bandwidth.value < slowest->bandwidth.value;
            if (slower) slowest = link;
            most = its;
        }
        left -= its;
        at.device += its * stride - devices;
    }
    return slowest;
}

coll::TierGroup Cluster::GroupOf(int first, int count, int stride) const {
    if (count < 2) return {};
    const int last = first + (count - 1) * stride;
    coll::TierGroup group;
    group.ranks = count;
    group.hosts = std::min(host_of(last) - host_of(first) + 1, count);
    group.far = Between(first, last);
    const LinkTier* near = NearLinkOf(first, count, stride);
    group.near = near != nullptr ? near->AsTier() : group.far;
    return group;
}

Cluster Cluster::WithHosts(int count) const {
    Cluster cluster = *this;
    cluster.hosts.resize(static_cast<size_t>(count), hosts.back());
    return cluster;
}

Cluster Cluster::Part(std::span<const int> which) const {
    Cluster part;
    for (const int host : which) part.hosts.push_back(hosts[static_cast<size_t>(host)]);
    part.wire = wire;
    part.wire_assumed = wire_assumed;
    part.words = part.HostWords();
    if (which.size() > 1) part.words += "," + wire.name;
    return part;
}

std::string Cluster::HostWords() const {
    std::string text;
    for (size_t host = 0; host < hosts.size();) {
        size_t end = host;
        while (end < hosts.size() && hosts[end].word == hosts[host].word) ++end;
        text += fmt::format("{}{}x{}", text.empty() ? "" : "+", end - host, hosts[host].word);
        host = end;
    }
    return text;
}

}  // namespace weft::plan
