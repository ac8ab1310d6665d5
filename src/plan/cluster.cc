// Implements ClusterSpec (machine.h): ranks on hosts, and the links between them.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/machine.h"

namespace weft::plan {

void ClusterSpec::Join(const Wire& by) {
    wire = by;
    const auto figures = [](const Wire& w) {
        return std::pair(w.bandwidth.value, w.latency.value);
    };
    for (Machine& host : hosts) {
        const bool own = host.own_wire && figures(*host.own_wire) == figures(wire);
        if (host.measured && !own) host.measured->ForgetWire();
    }
}

int ClusterSpec::ranks() const {
    int ranks = 0;
    for (const Machine& host : hosts) ranks += host.devices;
    return ranks;
}

Place ClusterSpec::PlaceOf(int rank) const {
    Place place{0, rank};
    for (const Machine& host : hosts) {
        if (place.device < host.devices) break;
        place.device -= host.devices;
        ++place.host;
    }
    return place;
}

bool ClusterSpec::alike() const {
    return std::ranges::all_of(hosts,
                               [&](const Machine& host) { return host.word == hosts[0].word; });
}

std::optional<double> ClusterSpec::price() const {
    double price = 0;
    for (const Machine& host : hosts) {
        if (!host.price) return std::nullopt;
        price += host.price->value;
    }
    if (hosts.size() < 2) return price;
    if (!wire.price) return std::nullopt;
    return price + wire.price->value * static_cast<double>(hosts.size());
}

const LinkTier* ClusterSpec::LinkOf(Place one, Place other) const {
    if (one.host != other.host) return nullptr;
    const std::optional<LinkTier>& within = hosts[static_cast<size_t>(one.host)].within;
    return within ? &*within : nullptr;
}

coll::Tier ClusterSpec::Between(int rank, int other) const {
    // A rank sends nothing to itself.
    if (rank == other) return {std::numeric_limits<double>::infinity(), 0, 0};
    const LinkTier* link = LinkOf(PlaceOf(rank), PlaceOf(other));
    return link != nullptr ? link->AsTier() : wire.AsTier();
}

const LinkTier* ClusterSpec::NearLinkOf(int first, int count, int stride) const {
    const LinkTier* slowest = nullptr;
    int most = 1;
    Place at = PlaceOf(first);
    for (int left = count; left > 0; ++at.host) {
        const Machine& host = hosts[static_cast<size_t>(at.host)];
        const int its = std::min(left, std::max(0, host.devices - at.device + stride - 1) / stride);
        if (its > 1 && its >= most) {
            const LinkTier* link = &*host.within;
            const bool slower = slowest == nullptr || its > most ||
                                link->bandwidth.value < slowest->bandwidth.value;
            if (slower) slowest = link;
            most = its;
        }
        left -= its;
        at.device += its * stride - host.devices;
    }
    return slowest;
}

coll::TierGroup ClusterSpec::GroupOf(int first, int count, int stride) const {
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

ClusterSpec ClusterSpec::WithHosts(int count) const {
    ClusterSpec cluster = *this;
    cluster.hosts.resize(static_cast<size_t>(count), hosts.back());
    return cluster;
}

ClusterSpec ClusterSpec::Part(std::span<const int> which) const {
    ClusterSpec part;
    for (const int host : which) part.hosts.push_back(hosts[static_cast<size_t>(host)]);
    part.wire = wire;
    part.wire_assumed = wire_assumed;
    part.words = part.HostWords();
    if (which.size() > 1) part.words += "," + wire.name;
    return part;
}

ClusterSpec ClusterSpec::WithVendorLinks() const {
    ClusterSpec cluster = *this;
    for (Machine& host : cluster.hosts) {
        if (host.link && host.devices > 1) host.within = host.link;
    }
    return cluster;
}

std::string ClusterSpec::HostWords() const {
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
