#include "fabric/predict.h"

#include <algorithm>
#include <set>

namespace weft::fabric {
namespace {

const NetRow* RowBetween(const NetReport& report, int from, int to) {
    const auto row = std::ranges::find_if(report.rows, [&](const NetRow& r) {
        return (r.from == from && r.to == to) ||
               (report.op == NetOp::kLatency && r.from == to && r.to == from);
    });
    return row == report.rows.end() ? nullptr : &*row;
}

// Combines a tier with one link; the slower value wins.
bool Take(const NetReport& latency, const NetReport& bandwidth, int from, int to,
          coll::Tier& tier) {
    const NetRow* small = RowBetween(latency, from, to);
    const NetRow* large = RowBetween(bandwidth, from, to);
    if (small == nullptr || large == nullptr) return false;
    if (small->timings.typical_us <= 0 || large->average_bytes_s <= 0) return false;
    const double rate = large->average_bytes_s;
    const double latency_s =
        std::max(small->timings.typical_us * 1e-6 - static_cast<double>(small->size) / rate, 0.0);
    tier.latency_s = std::max(tier.latency_s, latency_s);
    tier.bytes_per_s = tier.bytes_per_s > 0 ? std::min(tier.bytes_per_s, rate) : rate;
    return true;
}

// By rank: the lowest rank of its host. A host may have several names, one per worker; ranks that
// share memory are on one host.
std::vector<int> HostsIn(const NetReport& report) {
    const auto same = [&](size_t a, size_t b) {
        return report.hosts[a] == report.hosts[b] ||
               (a < report.links.size() && b < report.links[a].size() &&
                report.links[a][b] == "shm");
    };
    std::vector<int> hosts;
    for (size_t rank = 0; rank < report.hosts.size(); ++rank) {
        size_t first = 0;
        while (!same(rank, first)) ++first;
        hosts.push_back(first < rank ? hosts[first] : static_cast<int>(rank));
    }
    return hosts;
}

}  // namespace

std::optional<coll::TierGroup> GroupOf(const NetReport& latency, const NetReport& bandwidth) {
    coll::TierGroup group;
    group.ranks = latency.ranks();
    if (bandwidth.hosts != latency.hosts || group.ranks < 2) return std::nullopt;
    const std::vector<int> hosts = HostsIn(latency);
    group.hosts = static_cast<int>(std::set(hosts.begin(), hosts.end()).size());
    for (int from = 0; from < group.ranks; ++from) {
        for (int to = 0; to < group.ranks; ++to) {
            if (from == to) continue;
            const bool within = hosts[static_cast<size_t>(from)] == hosts[static_cast<size_t>(to)];
            if (!Take(latency, bandwidth, from, to, within ? group.near : group.far)) {
                return std::nullopt;
            }
        }
    }
    return group;
}

}  // namespace weft::fabric
