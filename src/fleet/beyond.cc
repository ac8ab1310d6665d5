#include "fleet/beyond.h"

#include <algorithm>
#include <optional>

#include "base/on_threads.h"
#include "cluster/join/dial.h"
#include "cluster/links.h"

namespace weft::fleet {
namespace {

constexpr int64_t kAskOneMs = 500;
constexpr size_t kMostAsked = 32;  // hosts

}  // namespace

Reach ReachBeyond(const std::vector<FoundHost>& known, const std::string& own_name,
                  const Bytes& key, const Deadline& deadline) {
    Reach reach;
    std::vector<FoundHost> all = known;
    for (const FoundHost& host : known) {
        reach.cables.insert({own_name, host.name});
        reach.cables.insert({host.name, own_name});
    }
    // Each round asks the hosts that the last one found.
    for (size_t begin = 0; begin < all.size() && all.size() <= kMostAsked && !deadline.expired();) {
        const size_t end = all.size();
        std::vector<std::optional<cluster::PlaceAnswer>> answers(end);
        [[maybe_unused]] const Status done = OnThreads(end - begin, end - begin, [&](size_t i) {
            const Deadline ask = Deadline::In(std::min(kAskOneMs, deadline.left_ms()));
            auto answer = cluster::AskWorker(all[begin + i].address, key, ask);
            if (answer.ok()) answers[begin + i] = *std::move(answer);
            return Status();
        });
        for (size_t i = begin; i < end; ++i) {
            if (!answers[i].has_value()) continue;
            const std::string name = all[i].name, address = all[i].address;
            for (const std::string& neighbor : answers[i]->neighbors) {
                reach.cables.insert({name, neighbor});
                reach.cables.insert({neighbor, name});
                const bool is_known =
                    neighbor == own_name || std::ranges::count(all, neighbor, &FoundHost::name) > 0;
                if (!is_known) all.push_back({neighbor, address + ">" + neighbor, name});
            }
        }
        begin = end;
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
