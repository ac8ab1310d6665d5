#include "fabric/measure.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <optional>

#include "cluster/join/launched.h"
#include "coll/comm.h"
#include "coll/link_probe.h"
#include "coll/measure.h"
#include "hw/cpu.h"

namespace weft::fabric {
namespace {

// Ranks that do not take part wait this long; heartbeats detect a lost rank.
constexpr int64_t kExchangeMs = 3'600'000;
constexpr size_t kMostWindow = size_t{4} << 20;

// One measurement.
struct Item {
    int from = -1, to = -1;
    int64_t size = 0;
    std::string algorithm = "put", wire = "full";
};

// A pair has one latency, but a bandwidth per direction.
std::vector<Item> PairItems(const NetJob& job, int ranks) {
    std::vector<Item> items;
    for (int from = 0; from < ranks; ++from) {
        for (int to = 0; to < ranks; ++to) {
            if (from == to || (job.op == NetOp::kLatency && from > to)) continue;
            for (int64_t size : job.sizes) items.push_back({from, to, size});
        }
    }
    return items;
}

std::vector<Item> VectorItems(const NetJob& job, int ranks) {
    std::vector<Item> items;
    const auto unit = static_cast<int64_t>(coll::WholeBytes(CollectiveOf(job.op), ranks));
    for (const std::string& algorithm : job.algorithms) {
        for (const std::string& wire : job.wires) {
            for (int64_t size : job.sizes) {
                items.push_back({-1, -1, std::max(unit, size / unit * unit), algorithm, wire});
            }
        }
    }
    return items;
}

std::vector<Item> PlanItems(const NetJob& job, int ranks) {
    return IsOfPairs(job.op) ? PairItems(job, ranks) : VectorItems(job, ranks);
}

class Walk {
  public:
    Walk(const NetJob& job, cluster::Cluster& cluster)
        : job_(job), cluster_(cluster), probes_(static_cast<size_t>(cluster.size())) {
        cluster.SetPhase("measuring");
        cluster.SetProgress([this] { return done_.load(); });
    }
    ~Walk() { cluster_.SetProgress(nullptr); }
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    // The report is complete on rank 0.
    Result<NetReport> Run(const NetProgress& progress);

  private:
    Result<NetRow> Measure(const Item& item);
    Result<NetRow> MeasurePair(const Item& item);
    Result<NetRow> MeasureVector(const Item& item);
    Status MakeComm();
    Result<NetRow> Exchange(const Item& item, const NetRow& mine);
    Result<NetReport> Describe();
    coll::LinkProbe& ProbeTo(int peer);

    const NetJob& job_;
    cluster::Cluster& cluster_;
    std::vector<std::unique_ptr<coll::LinkProbe>> probes_;
    std::unique_ptr<coll::Comm> comm_;  // of all ranks
    NetTableSource source_;
    std::atomic<int64_t> done_{0};
};

coll::LinkProbe& Walk::ProbeTo(int peer) {
    std::unique_ptr<coll::LinkProbe>& probe = probes_[static_cast<size_t>(peer)];
    if (probe == nullptr) {
        probe =
            std::make_unique<coll::LinkProbe>(*cluster_.fabric().links[static_cast<size_t>(peer)],
                                              cluster_.monitor(), cluster_.timeout_ms());
    }
    return *probe;
}

Result<NetRow> Walk::MeasurePair(const Item& item) {
    NetRow row;
    const int rank = cluster_.rank();
    if (rank != item.from && rank != item.to) return row;
    const bool lead = rank == item.from;
    coll::LinkProbe& probe = ProbeTo(lead ? item.to : item.from);
    const auto bytes = static_cast<size_t>(item.size);
    if (job_.op == NetOp::kLatency) {
        WEFT_ASSIGN(row.timings, probe.Latency(bytes, job_.budget, lead));
    } else {
        WEFT_ASSIGN(const coll::Bandwidth figures, probe.Stream(bytes, job_.budget, lead));
        row.timings = figures.timings;
        row.timings.iterations = figures.iterations;
        row.average_bytes_s = figures.average_bytes_s;
        row.peak_bytes_s = figures.peak_bytes_s;
        row.messages_s = figures.messages_s;
    }
    row.errors = probe.TakeErrors();
    return row;
}

Result<NetRow> Walk::MeasureVector(const Item& item) {
    coll::Question question;
    question.collective = CollectiveOf(job_.op);
    question.bytes = static_cast<size_t>(item.size);
    WEFT_ASSIGN(question.choice.algorithm, coll::ParseAlgorithm(item.algorithm));
    WEFT_ASSIGN(question.choice.wire, coll::ParseWire(item.wire));
    const coll::Choice used =
        comm_->tuning().For(question.collective, question.bytes, question.choice);
    WEFT_ASSIGN(const coll::Figures figures,
                coll::Measure(*comm_, question, job_.budget, cluster_.monitor()));
    NetRow row;
    row.algorithm = coll::AlgorithmName(used.algorithm);
    row.wire = coll::WireName(used.wire);
    row.timings = figures.timings;
    row.errors = figures.errors;
    return row;
}

Status Walk::MakeComm() {
    std::vector<int> everyone(static_cast<size_t>(cluster_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    coll::Channel channel{.window_bytes = kMostWindow};
    for (const auto& link : cluster_.fabric().links) {  // (with many ranks, they are smaller)
        if (link != nullptr)
            channel.window_bytes = std::min(channel.window_bytes, link->window_bytes());
    }
    WEFT_ASSIGN(comm_,
                coll::Comm::Make(cluster_.fabric(), everyone, channel, cluster_.timeout_ms()));
    WEFT_ASSIGN(source_, TuneGroup(cluster_, *comm_, everyone, job_.net_table));
    return {};
}

Result<NetRow> Walk::Measure(const Item& item) {
    return IsOfPairs(job_.op) ? MeasurePair(item) : MeasureVector(item);
}

// The slowest rank's figures, and the errors of all ranks.
Result<NetRow> Walk::Exchange(const Item& item, const NetRow& mine) {
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster_.AllGather("figures", NetRowToJson(mine), Deadline::In(kExchangeMs)));
    NetRow worst;
    int64_t errors = 0;
    for (const std::string& text : texts) {
        WEFT_ASSIGN(NetRow row, NetRowFromJson(text));
        errors += row.errors;
        if (row.timings.typical_us >= worst.timings.typical_us) worst = std::move(row);
    }
    worst.errors = errors;
    worst.from = item.from;
    worst.to = item.to;
    worst.size = item.size;
    worst.asked = item.algorithm;
    return worst;
}

// A host's name; the second and later hosts of a name have a number, too.
std::string HostLabel(const cluster::Cluster& cluster, int rank) {
    const cluster::HostInfo& host = cluster.host(rank);
    std::vector<std::string> boots;  // of hosts with that name
    for (int other = 0; other <= rank; ++other) {
        const cluster::HostInfo& its = cluster.host(other);
        const bool known = std::ranges::find(boots, its.boot_id) != boots.end();
        if (its.name == host.name && !known) boots.push_back(its.boot_id);
    }
    const auto number = std::ranges::find(boots, host.boot_id) - boots.begin() + 1;
    return number == 1 ? host.name : fmt::format("{} #{}", host.name, number);
}

// The transport of each link.
Result<NetReport> Walk::Describe() {
    NetReport report;
    report.op = job_.op;
    std::string mine;
    for (const auto& link : cluster_.fabric().links) {
        mine += (link == nullptr ? "-" : link->peer().transport) + " ";
    }
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("links", mine, Deadline::In(kExchangeMs)));
    report.transport = cluster_.fabric().transport;
    for (int rank = 0; rank < cluster_.size(); ++rank) {
        report.hosts.push_back(HostLabel(cluster_, rank));
        std::vector<std::string>& words = report.links.emplace_back();
        const std::string& text = all[static_cast<size_t>(rank)];
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find(' ', at), text.size());
            words.push_back(text.substr(at, end - at));
            at = end + 1;
        }
        words.resize(static_cast<size_t>(cluster_.size()));
    }
    return report;
}

Result<NetReport> Walk::Run(const NetProgress& progress) {
    const std::vector<int>& cores = cluster_.cores();
    std::optional<PinnedThread> pinned;
    if (!cluster_.cores_shared() && !cores.empty()) pinned.emplace(std::span(cores).first(1));
    WEFT_ASSIGN(NetReport report, Describe());
    if (!IsOfPairs(job_.op)) WEFT_TRY(MakeComm());
    const std::vector<Item> items = PlanItems(job_, cluster_.size());
    for (size_t i = 0; i < items.size(); ++i) {
        WEFT_ASSIGN(const NetRow mine, Measure(items[i]));
        WEFT_ASSIGN(NetRow row, Exchange(items[i], mine));
        done_.fetch_add(1);
        if (progress) progress(i + 1, items.size(), row);
        report.rows.push_back(std::move(row));
    }
    if (comm_ != nullptr) report.table = comm_->tuning();
    report.source = source_;
    return report;
}

Status WorkNet(cluster::Cluster& cluster) {
    WEFT_ASSIGN(const NetJob job, NetJobFromJson(cluster.job()));
    Walk walk(job, cluster);
    const auto report = walk.Run(nullptr);
    return report.ok() ? Status() : Status(report.error());
}

}  // namespace

Result<NetReport> RunNet(cluster::ClusterOptions options, const NetJob& job,
                         const NetProgress& progress) {
    const bool launched = options.launched != nullptr && options.launched->size() > 1;
    if (!launched && !cluster::NamesHosts(options) && options.local < 2) {
        return MakeError(ErrorCode::kUsage,
                         "'weft net' measures between ranks, and there is one. Use --local 2, or "
                         "--hosts HOST:PORT and --key-file with a worker on the other host");
    }
    if (IsOfPairs(job.op)) {
        const auto most = static_cast<size_t>(*std::ranges::max_element(job.sizes));
        options.window_bytes = (2 * most / kMostWindow + 1) * kMostWindow;
    }
    WEFT_ASSIGN(const auto cluster, cluster::Cluster::Launch(options, NetJobToJson(job)));
    const auto run = [&]() -> Result<NetReport> {
        Walk walk(job, *cluster);
        return walk.Run(progress);
    };
    auto report = run();
    if (!report.ok()) return cluster->ReportFailure(report.error());
    report->ends = cluster->links();
    if (Status end = cluster->Shutdown(Deadline::In(cluster::kShutdownMs)); !end.ok()) {
        return cluster->ReportFailure(end.error());
    }
    return report;
}

const cluster::JobKind kNetJob{.name = kNetJobKind, .activity = "a measurement", .work = WorkNet};

}  // namespace weft::fabric
