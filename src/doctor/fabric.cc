#include "doctor/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/on_threads.h"
#include "cluster/join/dial.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "cluster/watch/path_fault.h"
#include "doctor/cost.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "fabric/measure.h"
#include "fabric/paths.h"

namespace weft::doctor {
namespace {

constexpr double kSecondsEach = 0.1;
constexpr int64_t kOwnWorkerMs = 1000;
constexpr int64_t kAskMs = 2000;  // time for a worker to name the job that it runs
// Shares of the card's speed after frames, headers and the slot. TCP above 10 Gb/s is limited by a
// core.
constexpr double kShareOfCard = 0.8, kShareOfFastTcp = 0.4;
constexpr double kFastMegabits = 10'000;
// Latency in seconds that is assumed if the bandwidth alone explains a message's time.
constexpr double kLeastLatency = 1e-7;
// A link below this share of the fastest link of its kind is slow.
constexpr double kShareOfKin = 0.5;

// Highest usual one-way latency of 8 KB, in us, on an idle pair with a cable or a switch between
// them. TCP: 30 us for the two stacks, interrupts and wake-ups, and 65 us on a wire of 1 Gb/s.
double LatencyBound(std::string_view transport, double megabits) {
    if (transport == "verbs") return 12;
    if (transport == "shm") return 20;
    return megabits >= kFastMegabits ? 60 : 180;
}

// Speed of this machine's card on the route to `worker`; 0: unknown.
double MegabitsTo(HostView& here, const std::string& worker) {
    const auto address = ParseIpv4(worker.substr(0, worker.find(':')));
    if (!address || address->IsLoopback()) return 0;
    const Route* route = RouteTo(here, *address);
    const NetDevice* device = route == nullptr ? nullptr : FindNetDevice(here, route->device);
    return device == nullptr ? 0 : device->megabits;
}

struct Pair {
    std::string transport, hosts;  // "tcp", "a to b"
    std::string worker;            // from rank 0: the worker as the user named it; else ""
    double megabits = 0;           // of this machine's card; 0: unknown
    double us = 0, p99_us = 0;
    double bytes_s = 0;
    int64_t errors = 0;

    double BoundUs() const { return LatencyBound(transport, megabits); }
    double LeastBytes() const {
        const bool fast_tcp = transport == "tcp" && megabits > kFastMegabits;
        return megabits * 1e6 / 8 * (fast_tcp ? kShareOfFastTcp : kShareOfCard);
    }
};

std::vector<Pair> PairsOf(HostView& here, const std::vector<std::string>& workers,
                          const fabric::NetReport& latency, const fabric::NetReport& bandwidth) {
    std::vector<Pair> pairs;
    for (const fabric::NetRow& row : latency.rows) {
        const auto from = static_cast<size_t>(row.from), to = static_cast<size_t>(row.to);
        Pair pair;
        pair.transport = latency.links.at(from).at(to);
        pair.hosts = fmt::format("{} to {}", latency.hosts.at(from), latency.hosts.at(to));
        if (from == 0 && to <= workers.size()) pair.worker = workers[to - 1];
        if (pair.transport != "shm") pair.megabits = MegabitsTo(here, pair.worker);
        pair.us = row.timings.typical_us;
        pair.p99_us = row.timings.p99_us;
        pair.errors = row.errors;
        for (const fabric::NetRow& large : bandwidth.rows) {
            if (large.from != row.from || large.to != row.to) continue;
            pair.bytes_s = large.average_bytes_s;
            pair.errors += large.errors;
        }
        pairs.push_back(std::move(pair));
    }
    return pairs;
}

// us: one-way latency of kFabricSmall bytes; bytes_s: bandwidth of a large transfer.
HostLink MeasuredLink(double us, double bytes_s) {
    const double on_wire_s = static_cast<double>(kFabricSmall) / bytes_s;
    HostLink link;
    link.latency_s = std::max(us * 1e-6 - on_wire_s, kLeastLatency);
    link.most_bytes_s = bytes_s;
    return link;
}

// Asks for the cost of the measured link, compared with the bounds.
void EstimateMeasuredCost(HostView& here, const Pair& pair, double bound_us, double bytes_s,
                          Findings& out) {
    if (pair.bytes_s <= 0) return;
    out.EstimateCost(
        LinkQuestion(here, MeasuredLink(pair.us, pair.bytes_s), MeasuredLink(bound_us, bytes_s)));
}

// best_bytes_s: the highest bandwidth of all pairs with this transport. rdma: this machine has an
// active RDMA port.
void JudgePair(HostView& here, const Pair& pair, double best_bytes_s, bool rdma, Findings& out) {
    const std::string read =
        fmt::format("{}: 8 KiB one way in {:.1f} us (99 %: {:.1f}), {:.2f} GB/s", pair.transport,
                    pair.us, pair.p99_us, pair.bytes_s / 1e9);
    const double least = pair.LeastBytes();
    std::string expected = fmt::format("below {:g} us", pair.BoundUs());
    if (least > 0) expected += fmt::format(", above {:.2f} GB/s", least / 1e9);
    if (pair.errors > 0) {
        return out.Fail(fmt::format("{}; {} wrong bytes", read, pair.errors), expected,
                        "the link changes data",
                        "another cable, slot or card; weft doctor on both hosts (pcie-errors, "
                        "nic-counters)");
    }
    if (pair.us > pair.BoundUs()) {
        out.Warn(read, expected, "each of the two all-reduces in a layer of a model waits for it",
                 "weft doctor on both hosts (cpu-governor, nic-coalescing, pcie-power), and run it "
                 "again while they are idle");
        EstimateMeasuredCost(here, pair, pair.BoundUs(), pair.bytes_s, out);
    }
    if (pair.bytes_s < least) {
        out.Warn(
            read, expected,
            fmt::format("the card has {:g} Gb/s: loading and prefill are slower than it allows",
                        pair.megabits / 1e3),
            "weft doctor on both hosts (pcie-link, across-mtu); weft net bw shows each size");
        EstimateMeasuredCost(here, pair, pair.us, least, out);
    }
    if (pair.transport == "tcp" && !pair.worker.empty() && rdma) {
        out.Warn(read, "verbs: this machine has an RDMA port",
                 "TCP passes through the kernels of both hosts",
                 fmt::format("weft net lat --transport verbs --hosts {} shows why it can't be used",
                             pair.worker));
    }
    // A card of unknown speed can't explain the difference.
    if (pair.bytes_s < kShareOfKin * best_bytes_s) {
        out.Warn(read, "the bandwidth of the other links of this kind",
                 "every all-reduce waits for the slowest link",
                 "cable, slot and port of these two hosts; weft doctor on each");
    }
    if (out.empty()) out.Ok(read, expected);
}

}  // namespace

std::vector<Finding> JudgeFabric(HostView& here, const std::vector<std::string>& workers,
                                 const fabric::NetReport& latency,
                                 const fabric::NetReport& bandwidth) {
    std::vector<Finding> all;
    const std::vector<Pair> pairs = PairsOf(here, workers, latency, bandwidth);
    const bool rdma = std::ranges::any_of(RdmaPorts(here), &RdmaPort::active);
    for (const Pair& pair : pairs) {
        double best = 0;
        for (const Pair& other : pairs) {
            if (other.transport == pair.transport) best = std::max(best, other.bytes_s);
        }
        Findings out("across-measured", pair.hosts, &here);
        JudgePair(here, pair, best, rdma, out);
        std::ranges::move(out.Take(), std::back_inserter(all));
    }
    return all;
}

namespace {

std::string NameOfWorker(const cluster::ClusterOptions& options, size_t at) {
    return at < options.host_names.size() ? options.host_names[at] : options.hosts[at];
}

void LeaveOut(cluster::ClusterOptions& options, size_t at) {
    const auto place = static_cast<ptrdiff_t>(at);
    options.hosts.erase(options.hosts.begin() + place);
    if (at < options.host_names.size()) {
        options.host_names.erase(options.host_names.begin() + place);
    }
}

Finding PathFinding(const std::string& host, const std::string& fault) {
    return {"across-path",
            Severity::kFail,
            host,
            fault,
            "packets of the full MTU arrive",
            "small messages pass, and every transfer hangs until its deadline",
            "the same MTU on both hosts and on all that is between them"};
}

// Explains a failed measurement: by paths that drop packets between workers, else by the error.
void JudgeFailure(const HostView& here, const Error& error, const cluster::ClusterOptions& options,
                  std::vector<Finding>& all) {
    const bool of_link = cluster::IsOfDataLink(error);
    std::vector<std::string> faults;
    if (of_link) faults = fabric::FindPathFaults(options);
    for (const std::string& fault : faults) all.push_back(PathFinding(here.host(), fault));
    if (!faults.empty()) return;
    all.push_back({"across-measured", Severity::kFail, here.host(), error.message,
                   "messages to every worker and back", "no model can run over these hosts",
                   of_link ? "the cable, the switch ports and the firewall between the two hosts"
                           : "weft worker --listen HOST:PORT --key-file FILE on each of them"});
}

// Removes workers from `options` that large packets do not reach.
void LookAtPaths(cluster::ClusterOptions& options, std::vector<Finding>& all) {
    std::vector<std::string> faults(options.hosts.size());
    [[maybe_unused]] const Status done = OnThreads(faults.size(), faults.size(), [&](size_t i) {
        faults[i] = cluster::PathFaultTo(NameOfWorker(options, i), options.hosts[i]);
        return Status();
    });
    for (size_t i = faults.size(); i-- > 0;) {
        if (faults[i].empty()) continue;
        all.push_back(PathFinding(NameOfWorker(options, i), faults[i]));
        LeaveOut(options, i);
    }
}

Finding BusyFinding(const std::string& host, const std::string& text) {
    return {"across-measured",
            Severity::kNote,
            host,
            text,
            "an idle worker",
            "its links were not measured, because a measurement would slow its jobs",
            "run this again once the worker is idle"};
}

// Removes workers that run jobs, with a note each.
void LeaveOutBusy(cluster::ClusterOptions& options, std::vector<Finding>& all) {
    const auto key = cluster::ReadKeyFile(options.key_file);
    if (!key.ok()) return;
    std::vector<std::optional<cluster::PlaceAnswer>> answers(options.hosts.size());
    [[maybe_unused]] const Status done = OnThreads(answers.size(), answers.size(), [&](size_t i) {
        auto answer = cluster::QueryWorker(options.hosts[i], *key, Deadline::In(kAskMs));
        if (answer.ok()) answers[i] = *std::move(answer);
        return Status();
    });
    for (size_t i = answers.size(); i-- > 0;) {
        const std::optional<cluster::PlaceAnswer>& answer = answers[i];
        if (!answer.has_value() || answer->jobs.empty()) continue;
        const std::string text = cluster::BusyText("worker " + options.hosts[i], *answer);
        all.push_back(BusyFinding(NameOfWorker(options, i), text));
        LeaveOut(options, i);
    }
}

// Removes the worker that refused because it runs another job, with a note. Returns false if
// `error` names no such worker.
bool NoteBusy(const Error& error, cluster::ClusterOptions& options, std::vector<Finding>& all) {
    if (!cluster::IsBusy(error)) return false;
    for (size_t i = 0; i < options.hosts.size(); ++i) {
        if (error.message.find(options.hosts[i] + " ") == error.message.npos) continue;
        const std::string text = error.message.substr(0, error.message.find(": wait until"));
        all.push_back(BusyFinding(NameOfWorker(options, i), text));
        LeaveOut(options, i);
        return true;
    }
    return false;
}

}  // namespace

std::optional<Finding> NoteOwnJob(const HostView& here, const cluster::ClusterOptions& options) {
    const auto key = cluster::ReadKeyFile(options.key_file);
    if (!key.ok()) return std::nullopt;
    std::set<uint16_t> ports = {cluster::kWorkerPort};
    for (const std::string& host : options.hosts) {
        const auto address = cluster::ParseAddress(host);
        if (address.ok()) ports.insert(address->port);
    }
    const Deadline deadline = Deadline::In(kOwnWorkerMs);
    for (const uint16_t port : ports) {
        const auto answer = cluster::QueryWorker(fmt::format("127.0.0.1:{}", port), *key, deadline);
        if (!answer.ok() || answer->jobs.empty()) continue;
        return BusyFinding(here.host(), cluster::BusyText("the worker of this host", *answer));
    }
    return std::nullopt;
}

std::vector<Finding> LookAtWorkers(HostView& here, cluster::ClusterOptions options, bool apart) {
    std::vector<Finding> all;
    if (apart && options.hosts.size() > 1) {
        for (size_t i = 0; i < options.hosts.size(); ++i) {
            cluster::ClusterOptions one = options;
            one.hosts = {options.hosts[i]};
            one.host_names = {NameOfWorker(options, i)};
            std::ranges::move(LookAtWorkers(here, one), std::back_inserter(all));
        }
        return all;
    }
    LookAtPaths(options, all);
    LeaveOutBusy(options, all);
    while (!options.hosts.empty()) {
        auto found = MeasureFabric(here, options);
        if (!found.ok() && NoteBusy(found.error(), options, all)) continue;
        if (found.ok()) {
            std::ranges::move(*found, std::back_inserter(all));
        } else {
            JudgeFailure(here, found.error(), options, all);
        }
        break;
    }
    return all;
}

Result<std::vector<Finding>> MeasureFabric(HostView& here, const cluster::ClusterOptions& options) {
    fabric::NetJob job;
    job.budget.seconds = kSecondsEach;
    job.op = fabric::NetOp::kLatency;
    job.sizes = {kFabricSmall};
    WEFT_ASSIGN(const fabric::NetReport latency, fabric::RunNet(options, job));
    job.op = fabric::NetOp::kBandwidth;
    job.sizes = {kFabricLarge};
    WEFT_ASSIGN(const fabric::NetReport bandwidth, fabric::RunNet(options, job));
    return JudgeFabric(here, options.hosts, latency, bandwidth);
}

}  // namespace weft::doctor
