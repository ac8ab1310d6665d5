#include "fabric/paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/field_codec.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "cluster/frame.h"
#include "cluster/watch/path_fault.h"
#include "net/path_mtu.h"
#include "net/socket.h"

namespace weft::fabric {
namespace {

constexpr size_t kMostPeers = 64;      // that a rank probes
constexpr size_t kMostFaults = 8;      // that a rank reports
constexpr int64_t kProbedMs = 30'000;  // for all ranks; a probe takes at most four seconds

constexpr char kPathsJobKind[] = "paths";

// The job has no other fields.
constexpr auto kPathsJobFields = [](auto&, auto& visit) { visit.Kind(kPathsJobKind); };

// The peers whose paths a rank probes. (Rank 0 probes its own paths without a job.)
std::vector<size_t> PeersOf(size_t rank, size_t size) {
    std::vector<size_t> peers;
    for (size_t step = 1; rank > 0 && step < size && peers.size() < kMostPeers; ++step) {
        const size_t peer = (rank + step) % size;
        if (peer != 0) peers.push_back(peer);
    }
    return peers;
}

// Gets from rank 0 the addresses at which this rank reaches `peers`: "ADDRESS INTERFACE", with this
// rank's own interface.
Result<std::vector<std::string>> GatherWays(cluster::Cluster& cluster,
                                            const std::vector<size_t>& peers) {
    const auto size = static_cast<size_t>(cluster.size());
    std::vector<std::string> rows;
    const cluster::LinkTable links = cluster.links();
    for (size_t a = 0; a < links.size(); ++a) {
        std::vector<std::string> ways;
        for (const size_t b : PeersOf(a, size)) {
            ways.push_back(links[b][a].address + " " + links[a][b].interface);
        }
        rows.push_back(cluster::PackStrings(ways));
    }
    const std::string mine = cluster.rank() == 0 ? cluster::PackStrings(rows) : "";
    WEFT_ASSIGN(const auto all, cluster.AllGather("ways", mine, Deadline::In(kProbedMs)));
    WEFT_ASSIGN(rows, cluster::UnpackStrings(all[0]));
    if (rows.size() != size) {
        return MakeError(ErrorCode::kCorrupt, "paths of {} ranks; expected {}", rows.size(), size);
    }
    WEFT_ASSIGN(auto ways, cluster::UnpackStrings(rows[static_cast<size_t>(cluster.rank())]));
    if (ways.size() == peers.size()) return ways;
    return MakeError(ErrorCode::kCorrupt, "paths to {} ranks; expected {}", ways.size(),
                     peers.size());
}

// "": full-size packets arrive, or the probe has no result.
std::string ProbePeer(const std::string& from, const std::string& to, const std::string& way,
                      const std::string& port) {
    const size_t blank = way.find(' ');
    std::string address = way.substr(0, blank);
    const std::string interface = blank == way.npos ? "" : way.substr(blank + 1);
    const int number = port.size() > 5 ? 0 : std::atoi(port.c_str());
    if (address.empty() || number < 1 || number > 65535) return "";
    if (address.starts_with("fe80:")) address += "%" + interface;
    const auto path = net::ProbePathMtu(address, static_cast<uint16_t>(number));
    if (!path.has_value() || path->whole()) return "";
    return cluster::PathFaultText(*path, fmt::format("from {} to {} ({})", from, to, address),
                                  "on " + from);
}

// The faults that each rank finds, from all ranks.
Result<std::vector<std::string>> ProbeAll(cluster::Cluster& cluster) {
    cluster.SetPhase("probing paths");
    const std::vector<size_t> peers =
        PeersOf(static_cast<size_t>(cluster.rank()), static_cast<size_t>(cluster.size()));
    WEFT_ASSIGN(const std::vector<std::string> ways, GatherWays(cluster, peers));
    std::string own_port = "0";
    const auto listener = net::ListenTcp("", 0);
    if (listener.ok()) {
        WEFT_ASSIGN(const uint16_t port, net::BoundPort(listener->get()));
        own_port = std::to_string(port);
    }
    WEFT_ASSIGN(const auto ports, cluster.AllGather("ports", own_port, Deadline::In(kProbedMs)));
    std::vector<std::string> faults(peers.size());
    WEFT_TRY(OnThreads(peers.size(), peers.size(), [&](size_t i) {
        const size_t peer = peers[i];
        faults[i] = ProbePeer(cluster.host(cluster.rank()).name,
                              cluster.host(static_cast<int>(peer)).name, ways[i], ports[peer]);
        return Status();
    }));
    std::erase(faults, "");
    faults.resize(std::min(faults.size(), kMostFaults));
    WEFT_ASSIGN(const auto packed,
                cluster.AllGather("faults", cluster::PackStrings(faults), Deadline::In(kProbedMs)));
    std::vector<std::string> all;
    for (const std::string& each : packed) {
        WEFT_ASSIGN(const auto theirs, cluster::UnpackStrings(each));
        all.insert(all.end(), theirs.begin(), theirs.end());
    }
    all.resize(std::min(all.size(), kMostFaults));
    return all;
}

Status WorkPaths(cluster::Cluster& cluster) {
    WEFT_TRY(ProbeAll(cluster));
    return {};
}

}  // namespace

const cluster::JobKind kPathsJob{
    .name = kPathsJobKind, .activity = "a measurement", .work = WorkPaths};

std::vector<std::string> FindPathFaults(const cluster::ClusterOptions& options) {
    if (options.hosts.size() < 2) return {};
    cluster::ClusterOptions where = options;
    where.elastic = where.verbose = false;
    where.rejoin_ms = where.wait_ms = 0;
    where.usable_ranks = nullptr;
    where.replan = nullptr;
    where.loaded = nullptr;
    where.transport = "tcp";
    auto cluster = cluster::Cluster::Launch(where, EncodeFields(0, kPathsJobFields));
    if (!cluster.ok()) return {};
    auto faults = ProbeAll(**cluster);
    if (!faults.ok()) {
        const Error error = (*cluster)->ReportFailure(faults.error());
        Log(LogLevel::kWarning, "the search for faults of the paths failed: {}", error.message);
        return {};
    }
    // The faults are valid, however the ranks end.
    [[maybe_unused]] const Status ended = (*cluster)->Shutdown(Deadline::In(cluster::kShutdownMs));
    return *std::move(faults);
}

Error WithPathFaults(Error error, const cluster::ClusterOptions& options) {
    const size_t before = error.message.size();
    error = cluster::WithPathFaults(std::move(error), options);
    if (error.message.size() != before || !cluster::IsOfDataLink(error)) return error;
    for (const std::string& fault : FindPathFaults(options)) {
        cluster::AddSentence(error.message, fault);
    }
    return error;
}

}  // namespace weft::fabric
