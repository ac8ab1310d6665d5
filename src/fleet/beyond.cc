#include "fleet/beyond.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>

#include "base/log.h"
#include "base/on_threads.h"
#include "cluster/join/dial.h"
#include "cluster/links.h"

namespace weft::fleet {
namespace {

constexpr int64_t kAskOneMs = 500;
constexpr size_t kMostRequested = 32;  // hosts that are queried at the same time
constexpr size_t kMostReached = 4096;

}  // namespace

Reach ReachBeyond(const std::vector<FoundHost>& known, const std::string& own_name,
                  const Bytes& key, const Deadline& deadline) {
    Reach reach;
    std::vector<FoundHost> all = known;
    std::set<std::string> names = {own_name};
    for (const FoundHost& host : known) {
        names.insert(host.name);
        reach.cables.insert({own_name, host.name});
        reach.cables.insert({host.name, own_name});
    }
    std::atomic<size_t> unasked = 0;
    // Each round queries the hosts that the last round found.
    for (size_t begin = 0; begin < all.size() && !deadline.expired();) {
        const size_t end = all.size(), count = end - begin;
        std::vector<std::optional<cluster::PlaceAnswer>> answers(end);
        const size_t threads = std::min(count, kMostRequested);
        [[maybe_unused]] const Status done = OnThreads(threads, count, [&](size_t i) {
            if (deadline.expired()) {
                ++unasked;
                return Status();
            }
            const Deadline ask = Deadline::In(std::min(kAskOneMs, deadline.left_ms()));
            auto answer = cluster::QueryWorker(all[begin + i].address, key, ask);
            if (answer.ok()) answers[begin + i] = *std::move(answer);
            return Status();
        });
        for (size_t i = begin; i < end; ++i) {
            if (!answers[i].has_value()) continue;
            const std::string name = all[i].name, address = all[i].address;
            for (const std::string& neighbor : answers[i]->neighbors) {
                reach.cables.insert({name, neighbor});
                reach.cables.insert({neighbor, name});
                if (all.size() >= kMostReached || !names.insert(neighbor).second) continue;
                all.push_back({neighbor, address + ">" + neighbor, name});
            }
        }
        begin = end;
    }
    if (unasked > 0 || all.size() >= kMostReached) {
        Log(LogLevel::kWarning,
            "hosts that are on no cable of this host may be missing: {} of {} hosts were not asked "
            "for their neighbors in time (at most {} are used). List the hosts in the cluster's "
            "file",
            unasked.load(), all.size(), kMostReached);
    }
    reach.hosts.assign(all.begin() + static_cast<ptrdiff_t>(known.size()), all.end());
    return reach;
}

void OrderAlongCables(std::vector<FoundHost>& hosts, const std::string& own_name,
                      const Cabling& cables) {
    const auto name = [&](int rank) {
        return rank == 0 ? own_name : hosts[static_cast<size_t>(rank) - 1].name;
    };
    const std::vector<int> chain =
        cluster::ChainOf(static_cast<int>(hosts.size()) + 1, [&](int a, int b) {
            return cables.contains({name(a), name(b)});
        });
    if (chain.empty()) return;
    std::vector<FoundHost> ordered;
    for (const int rank : chain) {
        if (rank > 0) ordered.push_back(hosts[static_cast<size_t>(rank) - 1]);
    }
    hosts = std::move(ordered);
}

}  // namespace weft::fleet
