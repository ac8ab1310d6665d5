// weft net: measures the fabric between the ranks. `lat` and `bw` measure links, `allreduce` and
// similar ones collectives; `table` shows the autotuner's choices. Ranks start once per transport.
#include <algorithm>
#include <optional>

#include "base/log.h"
#include "cli/cluster/net_print.h"
#include "cli/cluster/sizes.h"
#include "cli/commands.h"
#include "coll/timings.h"
#include "coll/tuning.h"
#include "fabric/measure.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

using fabric::NetOp;
using fabric::NetReport;
using fabric::NetRow;

constexpr const char* kNetFooter =
    "Use --local N for ranks on this machine, or --hosts and --key-file for workers on other\n"
    "hosts. Weft checks the data at every size, and counts wrong bytes and sums as errors.\n\n"
    "Examples:\n"
    "  weft net lat --hosts 10.0.0.2:7000 --key-file weft.key\n"
    "  weft net bw --local 3 --transport shm,tcp\n"
    "  weft net allreduce --local 2 --transport shm --sizes 64,8192,65536 --json\n"
    "  weft net allreduce --local 2 --algorithm all\n"
    "  weft net --local 2        (the tuning table that all commands use)";

constexpr const char* kPairSizes = "8,64,512,4K,8K,64K,1M";
constexpr const char* kVectorSizes = "64,256,1K,4K,8K,16K,64K,256K,1M,4M";
constexpr int64_t kShownSync = 8192;

struct NetFlags {
    CommonFlags common;
    NetOp op = NetOp::kTable;
    std::vector<std::string> transports = {"auto"};
    std::string sizes;
    std::vector<std::string> algorithms = {"auto"}, wires = {"full"};
    int64_t iterations = 0;
    double seconds = 0.1;
};

const char* DefaultSizes(NetOp op) {
    if (op == NetOp::kTable) return "8K";
    return fabric::IsOfPairs(op) ? kPairSizes : kVectorSizes;
}

Result<fabric::NetJob> JobOf(const NetFlags& flags) {
    fabric::NetJob job;
    job.op = flags.op;
    WEFT_ASSIGN(job.sizes, ParseSizes(flags.sizes.empty() ? DefaultSizes(flags.op) : flags.sizes, 1,
                                      fabric::kMostNetBytes));
    job.algorithms = flags.algorithms;
    job.wires = flags.wires;
    if (job.algorithms == std::vector<std::string>{"all"}) {
        job.algorithms.clear();
        const bool several_hosts = cluster::NamesHosts(flags.common.cluster);
        for (const auto algorithm : coll::AlgorithmsOf(fabric::CollectiveOf(flags.op))) {
            if (algorithm == coll::Algorithm::kHierarchical && !several_hosts) continue;
            job.algorithms.emplace_back(coll::AlgorithmName(algorithm));
        }
    }
    for (const std::string& name : job.algorithms) {
        WEFT_TRY(fabric::CheckAlgorithm(job.op, name));
    }
    for (const std::string& name : job.wires) WEFT_TRY(coll::ParseWire(name));
    WEFT_ASSIGN(job.net_table, fabric::ParseNetTable(flags.common.net_table));
    job.budget.iterations = flags.iterations;
    job.budget.seconds = flags.seconds;
    return job;
}

// ---- Tables -------------------------------------------------------------------------------------

void PrintRows(const NetReport& report, int from, int to) {
    int shown = -2;
    for (const NetRow& row : report.rows) {
        if (from >= 0 && (row.from != from || row.to != to)) continue;
        // Each direction of a pair has its own table.
        if (shown != row.from) {
            if (row.from >= 0) PrintOut("# rank {} to rank {}\n", row.from, row.to);
            PrintOut("{}", NetHeading(report.op));
            shown = row.from;
        }
        PrintOut("{}", NetRowText(report.op, report.ranks(), row));
    }
}

// With several pairs, prints all pairs at one size, and the slowest pair at every size.
void PrintPairs(const NetReport& report) {
    int64_t small = report.rows.front().size, large = small;
    for (const NetRow& row : report.rows) {
        small = std::min(small, row.size);
        large = std::max(large, row.size);
    }
    const int64_t telling = report.op == NetOp::kLatency ? small : large;
    PrintOut("{}", NetMatrix(report, telling));
    const NetRow worst = SlowestPair(report, telling);
    PrintOut("\nThe slowest link ({}):\n",
             report.links[static_cast<size_t>(worst.from)][static_cast<size_t>(worst.to)]);
    PrintRows(report, worst.from, worst.to);
}

// The fastest measured all-reduce of 8 KB; null: none was measured.
const NetRow* SyncRow(const NetReport& report) {
    const bool sums = report.op == NetOp::kAllReduce || report.op == NetOp::kTable;
    const NetRow* best = nullptr;
    for (const NetRow& row : report.rows) {
        if (!sums || row.size != kShownSync) continue;
        if (best == nullptr || row.timings.typical_us < best->timings.typical_us) best = &row;
    }
    return best;
}

void PrintReport(const NetReport& report) {
    PrintOut("{}{}", NetTitle(report), NetLinks(report));
    const NetRow* sync = SyncRow(report);
    if (report.op == NetOp::kTable) {
        PrintOut("{}\n{}", NetTableText(report), sync == nullptr ? "" : NetHints(report, *sync));
    } else if (!fabric::IsOfPairs(report.op) || report.ranks() == 2) {
        PrintRows(report, -1, -1);
    } else {
        PrintPairs(report);
    }
    if (sync != nullptr) PrintOut("{}", TokenWords(report, *sync));
    PrintOut("\n");
}

// ---- The command --------------------------------------------------------------------------------

Result<NetReport> RunTransport(const NetFlags& flags, const fabric::NetJob& job,
                               const std::string& transport) {
    cluster::ClusterOptions options = flags.common.cluster;
    options.transport = transport;
    ProgressLine progress;
    progress.Show(fmt::format("starting the ranks ({}) ...", transport));
    return fabric::RunNet(options, job, [&](size_t done, size_t all, const NetRow& row) {
        const std::string pair =
            row.from < 0 ? "" : fmt::format(", rank {} and {}", row.from, row.to);
        progress.Show(fmt::format("{} over {}: {} of {} ({} bytes{})", fabric::NetOpName(job.op),
                                  transport, done, all, row.size, pair));
    });
}

// Whether the hosts lack this transport, so that others may still be measured.
bool LacksTransport(const Error& error) {
    using enum ErrorCode;
    return error.code == kNotFound || error.code == kUnsupported || error.code == kDenied ||
           error.code == kUsage;
}

// The reports of the transports that work; `missing` gets the others. Errors: of a failed
// measurement, or of the first transport if none works.
Result<std::vector<NetReport>> RunTransports(const NetFlags& flags, const fabric::NetJob& job,
                                             Json& missing) {
    std::vector<NetReport> reports;
    std::optional<Error> first;
    for (const std::string& name : flags.transports) {
        auto report = RunTransport(flags, job, name);
        if (!report.ok() && (flags.transports.size() == 1 || !LacksTransport(report.error()))) {
            return report.error();
        }
        if (!report.ok()) {
            Log(LogLevel::kWarning, "--transport {} is left out: {}", name, report.error().message);
            missing.push_back({{"transport", name}, {"error", report.error().message}});
            if (!first.has_value()) first = report.error();
            continue;
        }
        if (!flags.common.json) PrintReport(*report);
        FlushOut();
        reports.push_back(*std::move(report));
    }
    if (reports.empty() && first.has_value()) return *first;
    return reports;
}

Status RunNetCommand(NetFlags& flags) {
    WEFT_TRY(ResolveHosts(flags.common));
    CatchStop(flags.common);
    WEFT_ASSIGN(const fabric::NetJob job, JobOf(flags));
    for (const std::string& name : flags.transports) WEFT_TRY(net::ParseTransport(name));
    Json all = Json::array();
    WEFT_ASSIGN(const std::vector<NetReport> reports, RunTransports(flags, job, all));
    int64_t errors = 0;
    for (const NetReport& report : reports) {
        for (const NetRow& row : report.rows) errors += row.errors;
    }
    if (flags.common.json) {
        for (const NetReport& report : reports) all.push_back(NetToJson(report));
        PrintJson(all.size() == 1 ? all[0] : all);
    }
    if (errors == 0) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "{} values are wrong: the fabric or the memory corrupts data, so answers over "
                     "it may be wrong. 'weft doctor' searches for the cause.",
                     errors);
}

void AddMeasuring(const Command& command, NetOp op, NetFlags& flags) {
    command.AddEach("--sizes", flags.sizes,
                    fmt::format("Message sizes in bytes: 64,8K,1M or ranges 64:1M:x4 (default {})",
                                DefaultSizes(op)));
    command.AddNumber("--iters", flags.iterations, 1, coll::kMostIterations,
                      "Iterations per row (default: as many as fit into the time)");
    command.AddNumber("--seconds", flags.seconds, 1e-4, 3600.0,
                      "Seconds per row (0.1), at most 100000 iterations");
    if (fabric::IsOfPairs(op) || op == NetOp::kAllToAll) return;
    std::vector<std::string> names{coll::AlgorithmName(coll::Algorithm::kAuto)};
    for (const auto algorithm : coll::AlgorithmsOf(fabric::CollectiveOf(op))) {
        names.emplace_back(coll::AlgorithmName(algorithm));
    }
    command
        .AddOption("--algorithm", flags.algorithms,
                   fmt::format("Algorithms to measure: all, or some of {}", fmt::join(names, ", ")))
        .Commas()
        .OneEach();
    if (op != NetOp::kAllReduce) return;
    command
        .AddOption("--allreduce-dtype", flags.wires,
                   "Data type on the wire: full (f32), bf16 or q8, or several separated by commas")
        .Commas()
        .OneEach();
}

void AddRanks(const Command& command, NetFlags& flags) {
    AddRankFlags(command, flags.common);
    command.Group("Cluster")
        .AddOption("--transport", flags.transports,
                   fmt::format("{}, or several separated by commas",
                               fmt::join(net::TransportNames(), ", ")))
        .Commas()
        .OneEach()
        .Suggest(net::TransportNames());
    AddJson(command, flags.common.json);
    command.Footer(kNetFooter);
}

void AddOp(const Command& net, std::shared_ptr<NetFlags> flags, NetOp op, const char* help,
           int& status) {
    const Command command = net.AddCommand(fabric::NetOpName(op), help);
    if (op != NetOp::kTable) AddMeasuring(command, op, *flags);
    AddRanks(command, *flags);
    SetCallback(command, flags, flags->common.json, status, [op](NetFlags& all) {
        all.op = op;
        return RunNetCommand(all);
    });
}

}  // namespace

void AddNet(const Command& app, int& status) {
    auto flags = std::make_shared<NetFlags>();
    const Command net = app.AddCommand(
        "net", "Measure the fabric between the ranks; without a subcommand: build the tuning table",
        kNetFooter);
    net.NeedsCommand();
    AddOp(net, flags, NetOp::kLatency,
          "Measure the one-way latency of every link (as ib_write_lat)", status);
    AddOp(net, flags, NetOp::kBandwidth, "Measure the bandwidth of every link (as ib_write_bw)",
          status);
    AddOp(net, flags, NetOp::kAllReduce, "Measure all-reduce over all ranks, by size", status);
    AddOp(net, flags, NetOp::kAllGather, "Measure all-gather over all ranks, by size", status);
    AddOp(net, flags, NetOp::kReduceScatter, "Measure reduce-scatter over all ranks, by size",
          status);
    AddOp(net, flags, NetOp::kAllToAll, "Measure all-to-all over all ranks, by size", status);
    AddOp(net, flags, NetOp::kTable, "Show which algorithm Weft uses at each size, and why",
          status);
}

}  // namespace weft::cli
