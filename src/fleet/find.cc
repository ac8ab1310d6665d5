#include "fleet/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "fleet/beyond.h"

namespace weft::fleet {
namespace {

constexpr int64_t kSettleMs = 250;  // after the last change of the heard hosts

// Adds a host that the cluster can use.
void Take(const Peer& peer, const Hearing& hearing, Chosen& chosen) {
    if (!cluster::CanWorkTogether(peer.build, {})) {
        chosen.left_out.push_back(fmt::format(
            "{}. {}", cluster::RefusalText(peer.name, peer.build, {}), cluster::kSameBuild));
        return;
    }
    const ReportedCable* cable = BestCable(peer, hearing.wires);
    if (cable != nullptr) chosen.hosts.push_back({peer.name, WorkerAddress(peer, *cable)});
}

std::string RequestedHostsText(const Hearing& hearing, const std::vector<FoundHost>& beyond) {
    std::vector<std::string> asked, not_asked;
    for (const Wire& wire : hearing.wires) {
        if (wire.trouble.empty()) {
            asked.push_back(wire.name);
        } else {
            not_asked.push_back(fmt::format("{} not: {}", wire.name, wire.trouble));
        }
    }
    std::string text = asked.empty() ? std::string("No interface can send requests")
                                     : fmt::format("Asked on {}", fmt::join(asked, ", "));
    if (!not_asked.empty()) text += fmt::format(" ({})", fmt::join(not_asked, "; "));
    std::vector<std::string> heard;
    for (const Peer& peer : hearing.peers) {
        const ReportedCable* cable = BestCable(peer, hearing.wires);
        if (cable != nullptr) heard.push_back(fmt::format("{} on {}", peer.name, cable->interface));
    }
    for (const FoundHost& host : beyond) {
        heard.push_back(fmt::format("{} by way of {}", host.name, host.via));
    }
    if (!heard.empty()) text += fmt::format(". Found: {}", fmt::join(heard, ", "));
    for (const Stranger& stranger : hearing.strangers) {
        text += fmt::format(". {} on {} has {}", stranger.address, stranger.interface,
                            stranger.other_key ? "another key" : "another version of weft");
    }
    return text;
}

Error NoHostsError(const std::string& cluster, const ClusterFile& file, const Chosen& chosen,
                   const Hearing& hearing, int64_t waited_ms) {
    if (chosen.hosts.empty() && !chosen.left_out.empty() &&
        chosen.left_out.size() >= chosen.missing.size()) {
        return MakeError(ErrorCode::kTimeout, "cluster '{}': {}", cluster,
                         fmt::join(chosen.left_out, ". "));
    }
    const std::string who =
        chosen.missing.empty() ? "no other host was found"
        : chosen.missing.size() == 1
            ? fmt::format("host {} was not found", chosen.missing[0])
            : fmt::format("hosts {} were not found", fmt::join(chosen.missing, ", "));
    std::string reasons = RequestedHostsText(hearing, chosen.beyond);
    for (const std::string& reason : chosen.left_out) reasons += ". " + reason;
    return MakeError(ErrorCode::kTimeout,
                     "cluster '{}': {} within {} ms. {}. Is 'weft up' running there "
                     "({}), and UDP port {} open? --wait 1m waits longer, and hosts that beacons "
                     "don't reach take an address in {}",
                     cluster, who, waited_ms, reasons, file.key, kDiscoveryPort,
                     PathsOf(cluster).value().file);
}

}  // namespace

Chosen ChooseHosts(const ClusterFile& file, const Hearing& hearing) {
    Chosen chosen;
    if (file.hosts.empty()) {
        for (const Peer& peer : hearing.peers) Take(peer, hearing, chosen);
        return chosen;
    }
    std::set<uint64_t> taken;
    for (const ClusterHost& host : file.hosts) {
        if (!host.address.empty()) {
            chosen.hosts.push_back({host.name, cluster::WithWorkerPort(host.address)});
            continue;
        }
        // Two hosts with the same name are used in turn.
        const auto peer = std::ranges::find_if(hearing.peers, [&](const Peer& each) {
            return each.name == host.name && !taken.contains(each.host);
        });
        if (peer == hearing.peers.end()) {
            chosen.missing.push_back(host.name);
        } else {
            taken.insert(peer->host);
            const size_t before = chosen.hosts.size();
            Take(*peer, hearing, chosen);
            if (chosen.hosts.size() == before) chosen.missing.push_back(host.name);
        }
    }
    return chosen;
}

std::vector<std::string> AddressesOf(const std::string& name, const Hearing& hearing) {
    std::vector<std::string> addresses;
    for (Peer peer : hearing.peers) {
        const bool good = peer.name == name && cluster::CanWorkTogether(peer.build, {});
        while (good && !peer.heard.empty()) {
            const ReportedCable* best = BestCable(peer, hearing.wires);
            addresses.push_back(WorkerAddress(peer, *best));
            peer.heard.erase(peer.heard.begin() + (best - peer.heard.data()));
        }
    }
    return addresses;
}

std::vector<std::string> HostNames(const Hearing& hearing) {
    std::vector<std::string> names;
    for (const Peer& peer : hearing.peers) {
        const bool known = peer.name == OwnName() || std::ranges::count(names, peer.name) > 0;
        if (!known && cluster::CanWorkTogether(peer.build, {})) names.push_back(peer.name);
    }
    return names;
}

Status CheckHasKey(const std::string& cluster, const ClusterFile& file) {
    if (::access(file.key.c_str(), F_OK) == 0) return {};
    return MakeError(ErrorCode::kNotFound,
                     "there is no cluster '{}' here: {} is missing. 'weft up' on the first host "
                     "makes it and prints the key phrase; 'weft up -' on each other host asks for "
                     "it",
                     cluster, file.key);
}

Result<Hearing> QueryHosts(const std::string& cluster, const ClusterFile& file,
                           const SelfFacts& self) {
    WEFT_TRY(CheckHasKey(cluster, file));
    WEFT_ASSIGN(const Bytes key, cluster::ReadKeyFile(file.key));
    WEFT_ASSIGN(const auto discovery, Discovery::Start(key, self, false));
    return discovery->Await([](const Hearing&) { return false; }, Deadline::In(kAskMs));
}

// Adds the hosts that only other hosts find: hosts that `file` lists, or all of them. Without a
// list, puts the hosts into an order for a pipeline if some are on no cable of this host.
static void AddHostsBeyond(const ClusterFile& file, const Bytes& key, const Hearing& hearing,
                           Chosen& chosen) {
    if (!file.hosts.empty() && chosen.missing.empty()) return;
    std::vector<FoundHost> known = chosen.hosts;
    if (!file.hosts.empty()) known = ChooseHosts({}, hearing).hosts;
    const Reach reach = ReachBeyond(known, OwnName(), key, Deadline::In(kAskMs));
    if (reach.hosts.empty()) return;
    chosen.beyond = reach.hosts;
    if (file.hosts.empty()) {
        chosen.hosts.insert(chosen.hosts.end(), reach.hosts.begin(), reach.hosts.end());
        return OrderAlongCables(chosen.hosts, OwnName(), reach.cables);
    }
    std::vector<FoundHost> in_order;
    for (const ClusterHost& host : file.hosts) {
        for (const auto& list : {chosen.hosts, reach.hosts}) {
            const auto found = std::ranges::find(list, host.name, &FoundHost::name);
            if (found == list.end()) continue;
            in_order.push_back(*found);
            break;
        }
        const bool here = !in_order.empty() && in_order.back().name == host.name;
        if (here) std::erase(chosen.missing, host.name);
    }
    chosen.hosts = std::move(in_order);
}

Result<FoundCluster> FindCluster(const std::string& cluster, const std::string& key_file,
                                 int64_t wait_ms, const std::vector<std::string>& needed,
                                 std::vector<std::string>* missing, bool beyond) {
    WEFT_ASSIGN(ClusterFile file, ReadClusterFile(cluster));
    if (!key_file.empty()) file.key = key_file;
    if (file.hosts.empty()) {
        for (const std::string& name : needed) file.hosts.push_back({name, "", ""});
    }
    WEFT_TRY(CheckHasKey(cluster, file));
    FoundCluster found{file.key, {}, {}, {}, nullptr};
    Chosen chosen = ChooseHosts(file, found.hearing);
    if (file.hosts.empty() || !chosen.missing.empty()) {
        WEFT_ASSIGN(const Bytes key, cluster::ReadKeyFile(file.key));
        WEFT_ASSIGN(std::unique_ptr<Discovery> discovery,
                    Discovery::Start(key, {OwnName(), "", 0, 0}, false));
        const int64_t begin_ns = NowNs();
        int64_t changed_ns = begin_ns;
        size_t seen = 0;
        const auto enough = [&](const Hearing& hearing) {
            chosen = ChooseHosts(file, hearing);
            size_t ways = 0;
            for (const Peer& peer : hearing.peers) ways += peer.heard.size();
            if (ways != seen) changed_ns = NowNs();
            seen = ways;
            // All hosts of the file; or without a list, hosts that answer until no new one does for
            // a while.
            const bool all = chosen.missing.empty() && !chosen.hosts.empty();
            const int64_t quiet_ms = (NowNs() - changed_ns) / kNsPerMs;
            return all && quiet_ms >= (file.hosts.empty() ? kAskMs / 2 : kSettleMs);
        };
        const int64_t most_ms = wait_ms > 0 ? wait_ms : kAskMs;
        const Deadline deadline = Deadline::In(most_ms);
        // (Hosts beyond the neighbors must be queried again and again.)
        const int64_t look_ms = beyond && !file.hosts.empty() ? kAskMs : most_ms;
        do {
            const int64_t left_ms = std::min(look_ms, deadline.left_ms());
            found.hearing = discovery->Await(enough, Deadline::In(left_ms));
            chosen = ChooseHosts(file, found.hearing);
            if (beyond) AddHostsBeyond(file, key, found.hearing, chosen);
        } while (!chosen.missing.empty() && !deadline.expired());
        if (chosen.hosts.empty() || !chosen.missing.empty()) {
            if (missing != nullptr) *missing = chosen.missing;
            return NoHostsError(cluster, file, chosen, found.hearing, most_ms);
        }
        found.discovery = std::move(discovery);
    }
    for (const std::string& reason : chosen.left_out) Log(LogLevel::kWarning, "{}", reason);
    found.hosts = std::move(chosen.hosts);
    found.neighbours = NeighboursOf(found.hearing);
    return found;
}

Result<std::vector<std::string>> SshHostsOf(const std::string& cluster) {
    WEFT_ASSIGN(const ClusterFile file, ReadClusterFile(cluster));
    WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
    std::vector<std::string> hosts;
    for (const ClusterHost& host : file.hosts) {
        if (host.ssh.empty()) {
            return MakeError(ErrorCode::kUsage,
                             "{}: host {} has no ssh = \"USER@HOST\", which weft needs to reach it",
                             paths.file, host.name);
        }
        hosts.push_back(host.ssh);
    }
    if (!hosts.empty()) return hosts;
    return MakeError(ErrorCode::kUsage,
                     "{} names no hosts. 'weft hosts add USER@HOST --cluster {}' adds one",
                     paths.file, cluster);
}

}  // namespace weft::fleet
