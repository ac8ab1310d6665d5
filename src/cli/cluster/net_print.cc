#include "cli/cluster/net_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cluster/links.h"
#include "coll/tuning.h"
#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::cli {
namespace {

using fabric::NetOp;
using fabric::NetReport;
using fabric::NetRow;

constexpr double kMiB = 1024.0 * 1024.0;
// A link counts as slow if it is this factor worse than the median of its kind.
constexpr double kSlow = 1.5;

// A deep current model, with 61 layers.
constexpr const char* kExample = "deepseek-v3";

struct Example {
    int64_t layers = 0, syncs = 0;  // 0: the model cannot be sharded like this
};

// All-reduces per token of the model, counted in its Program.
Example ExampleOf(int ranks) {
    const auto shape = plan::OpenWalk(kExample);
    if (!shape.ok()) return {};
    const auto syncs = plan::SyncsOfToken(shape->walk, ranks);
    if (!syncs.ok()) return {};
    return {shape->walk.hyper().layers, *syncs};
}

const char* LongName(NetOp op) {
    switch (op) {
        case NetOp::kLatency: return "latency of a put, one way";
        case NetOp::kBandwidth: return "bandwidth of puts";
        case NetOp::kAllReduce: return "all-reduce (f32, sum)";
        case NetOp::kAllGather: return "all-gather";
        case NetOp::kReduceScatter: return "reduce-scatter (f32, sum)";
        case NetOp::kAllToAll: return "all-to-all";
        case NetOp::kTable: return "the fabric's table";
    }
    return "?";
}

// The values of the matrix: microseconds, or MiB per second.
double MatrixValue(NetOp op, const NetRow& row) {
    return op == NetOp::kLatency ? row.timings.typical_us : row.average_bytes_s / kMiB;
}

// The factor by which `value` is worse than `usual`.
double Slowness(NetOp op, double value, double usual) {
    if (value <= 0 || usual <= 0) return 1;
    return op == NetOp::kLatency ? value / usual : usual / value;
}

struct Cell {
    double value = 0;
    std::string transport;
};

std::vector<std::vector<Cell>> Cells(const NetReport& report, int64_t size) {
    const auto ranks = static_cast<size_t>(report.ranks());
    std::vector<std::vector<Cell>> cells(ranks, std::vector<Cell>(ranks));
    for (const NetRow& row : report.rows) {
        if (row.size != size) continue;
        const auto from = static_cast<size_t>(row.from), to = static_cast<size_t>(row.to);
        cells[from][to] = {MatrixValue(report.op, row), report.links[from][to]};
        if (report.op == NetOp::kLatency) cells[to][from] = cells[from][to];
    }
    return cells;
}

// The median over links of one kind.
double UsualValue(const std::vector<std::vector<Cell>>& cells, const std::string& transport) {
    std::vector<double> values;
    for (const auto& line : cells) {
        for (const Cell& cell : line) {
            if (cell.value > 0 && cell.transport == transport) values.push_back(cell.value);
        }
    }
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[values.size() / 2];
}

// A column of a table, and a field of --json.
struct Figure {
    const char *heading, *key;
    int width, digits;
    double (*of)(const NetRow&);
};

constexpr Figure kLatencyFigures[] = {
    {"t_min[usec]", "t_min_us", 12, 2, [](const NetRow& r) { return r.timings.min_us; }},
    {"t_max[usec]", "t_max_us", 12, 2, [](const NetRow& r) { return r.timings.max_us; }},
    {"t_typical[usec]", "t_typical_us", 16, 2,
     [](const NetRow& r) { return r.timings.typical_us; }},
    {"t_avg[usec]", "t_avg_us", 12, 2, [](const NetRow& r) { return r.timings.average_us; }},
    {"t_stdev[usec]", "t_stdev_us", 14, 2, [](const NetRow& r) { return r.timings.stdev_us; }},
    {"99% percentile[usec]", "t_p99_us", 21, 2, [](const NetRow& r) { return r.timings.p99_us; }},
    {"99.9% percentile[usec]", "t_p999_us", 23, 2,
     [](const NetRow& r) { return r.timings.p999_us; }}};

constexpr Figure kBandwidthFigures[] = {
    {"BW peak[MiB/sec]", "bw_peak_mib_s", 17, 2,
     [](const NetRow& r) { return r.peak_bytes_s / kMiB; }},
    {"BW average[MiB/sec]", "bw_average_mib_s", 20, 2,
     [](const NetRow& r) { return r.average_bytes_s / kMiB; }},
    {"MsgRate[Mpps]", "msg_rate_mpps", 14, 6, [](const NetRow& r) { return r.messages_s * 1e-6; }}};

// The figures of an operation on pairs.
std::span<const Figure> FiguresOf(NetOp op) {
    if (op == NetOp::kLatency) return kLatencyFigures;
    return op == NetOp::kBandwidth ? kBandwidthFigures : std::span<const Figure>();
}

double RoundTo(double value, double a_unit) {
    return std::round(value * a_unit) / a_unit;
}

const char* SourceName(const fabric::NetTableSource& source) {
    switch (source.kind) {
        case fabric::NetTableSource::kBuiltIn: return "built_in";
        case fabric::NetTableSource::kCached: return "cached";
        case fabric::NetTableSource::kMeasured: return "measured";
    }
    return "?";
}

Json RowToJson(const NetReport& report, const NetRow& row) {
    Json json;
    if (fabric::IsOfPairs(report.op)) {
        json["from"] = row.from;
        json["to"] = row.to;
    }
    json["size"] = row.size;
    json["algorithm"] = row.algorithm;
    json["wire"] = row.wire;
    json["p50_us"] = RoundTo(row.timings.typical_us, 1e4);
    json["p99_us"] = RoundTo(row.timings.p99_us, 1e4);
    json["algbw_gbps"] = RoundTo(fabric::AlgorithmBandwidth(row) * 1e-9, 1e6);
    json["errors"] = row.errors;
    const auto figures = FiguresOf(report.op);
    if (!figures.empty()) json["iterations"] = row.timings.iterations;
    for (const Figure& figure : figures) json[figure.key] = RoundTo(figure.of(row), 1e6);
    return json;
}

Json EndToJson(const net::WireEnd& end) {
    return {{"address", end.address},
            {"interface", end.interface},
            {"speed_mbps", end.speed_mbps},
            {"device", end.device}};
}

// One entry per pair.
Json LinksToJson(const NetReport& report) {
    Json links = Json::array();
    for (size_t a = 0; a < report.ends.size(); ++a) {
        for (size_t b = a + 1; b < report.ends.size(); ++b) {
            links.push_back({{"from", a},
                             {"to", b},
                             {"transport", report.ends[a][b].transport},
                             {"encrypted", report.ends[a][b].encrypted},
                             {"from_end", EndToJson(report.ends[a][b])},
                             {"to_end", EndToJson(report.ends[b][a])}});
        }
    }
    return links;
}

}  // namespace

std::string NetLinks(const NetReport& report) {
    std::string text;
    bool within = true;
    for (const cluster::LinkRow& ends : report.ends) {
        for (size_t peer = 0; peer < ends.size(); ++peer) {
            within = within && ends[peer].address.empty();
        }
    }
    if (within && report.op != NetOp::kTable) return text;
    for (const std::string& line : cluster::LinkLines(report.ends, report.hosts)) {
        text += "# " + line + "\n";
    }
    return text;
}

Json NetToJson(const NetReport& report) {
    Json rows = Json::array();
    for (const NetRow& row : report.rows) rows.push_back(RowToJson(report, row));
    Json json = {{"transport", report.transport},
                 {"ranks", report.ranks()},
                 {"op", fabric::NetOpName(report.op)},
                 {"links", LinksToJson(report)},
                 {"rows", std::move(rows)}};
    if (report.op == NetOp::kTable && report.table) {
        json["source"] = SourceName(report.source);
        json["took_ms"] = RoundTo(report.source.took_ms, 1e3);
        json["table"] = Json::parse(report.table->ToJson(), nullptr, false);
    }
    return json;
}

std::string NetTitle(const NetReport& report) {
    if (std::ranges::count(report.hosts, report.hosts[0]) == report.ranks()) {
        return fmt::format("# {}, {} ranks over {} on {}\n", LongName(report.op), report.ranks(),
                           report.transport, report.hosts[0]);
    }
    std::string hosts;
    for (int rank = 0; rank < report.ranks(); ++rank) {
        const std::string& host = report.hosts[static_cast<size_t>(rank)];
        hosts += fmt::format("{}rank {} on {}", rank == 0 ? "" : ", ", rank, host);
    }
    return fmt::format("# {}, {} ranks over {}: {}\n", LongName(report.op), report.ranks(),
                       report.transport, hosts);
}

std::string NetHeading(NetOp op) {
    if (!fabric::IsOfPairs(op)) {
        return fmt::format(
            "#{:>11} {:>11} {:>6} {:>18} {:>5} {:>11} {:>11} {:>8} {:>8} {:>7}\n"
            "#{:>11} {:>11} {:>6} {:>18} {:>5} {:>11} {:>11} {:>8} {:>8} {:>7}\n",
            "size", "count", "type", "algorithm", "wire", "time", "99%", "algbw", "busbw", "#wrong",
            "(B)", "(elements)", "", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
    }
    std::string text = fmt::format("{:>10} {:>11}", "#bytes", "#iterations");
    for (const Figure& figure : FiguresOf(op)) {
        text += fmt::format(" {:>{}}", figure.heading, figure.width);
    }
    return text + "\n";
}

std::string NetRowText(NetOp op, int ranks, const NetRow& row) {
    const coll::Timings& t = row.timings;
    if (!fabric::IsOfPairs(op)) {
        const double bandwidth = fabric::AlgorithmBandwidth(row) * 1e-9;
        return fmt::format(
            " {:>11} {:>11} {:>6} {:>18} {:>5} {:>11.2f} {:>11.2f} {:>8.2f} {:>8.2f} {:>7}\n",
            row.size, row.size / 4, "float", row.algorithm, row.wire, t.typical_us, t.p99_us,
            bandwidth, bandwidth * fabric::BusFactor(op, ranks), row.errors);
    }
    std::string text = fmt::format("{:>10} {:>11}", row.size, t.iterations);
    for (const Figure& figure : FiguresOf(op)) {
        text += fmt::format(" {:>{}.{}f}", figure.of(row), figure.width, figure.digits);
    }
    return text + (row.errors == 0 ? "\n" : fmt::format("  {} WRONG BYTES\n", row.errors));
}

std::string NetMatrix(const NetReport& report, int64_t size) {
    const auto cells = Cells(report, size);
    const size_t ranks = cells.size();
    if (ranks <= 2) return "";
    std::string text =
        fmt::format("\n{} of {} bytes, every pair ({}):\n{:>10}",
                    report.op == NetOp::kLatency ? "One-way latency" : "Bandwidth", size,
                    report.op == NetOp::kLatency ? "us, typical" : "MiB/s, row to column", "");
    for (size_t to = 0; to < ranks; ++to) text += fmt::format("{:>11}", fmt::format("rank {}", to));
    text += "\n";
    std::string notes;
    for (size_t from = 0; from < ranks; ++from) {
        text += fmt::format("{:>10}", fmt::format("rank {}", from));
        for (size_t to = 0; to < ranks; ++to) {
            const Cell& cell = cells[from][to];
            if (from == to) {
                text += fmt::format("{:>11}", "-");
                continue;
            }
            const double usual = UsualValue(cells, cell.transport);
            const double times = Slowness(report.op, cell.value, usual);
            const bool slow = times >= kSlow;
            text += fmt::format("{:>10.2f}{}", cell.value, slow ? '*' : ' ');
            const bool once = report.op == NetOp::kBandwidth || from < to;
            if (!slow || !once) continue;
            notes += fmt::format(
                "* rank {} ({}) {} rank {} ({}) over {}: {:.1f} times worse than the other links "
                "({:.2f}). 'weft doctor' on both hosts looks for the cause.\n",
                from, report.hosts[from], report.op == NetOp::kLatency ? "-" : "to", to,
                report.hosts[to], cell.transport, times, usual);
        }
        text += fmt::format("  {}\n", report.hosts[from]);
    }
    return text + notes;
}

NetRow SlowestPair(const NetReport& report, int64_t size) {
    NetRow worst;
    for (const NetRow& row : report.rows) {
        if (row.size != size) continue;
        const bool worse = worst.from < 0 || Slowness(report.op, MatrixValue(report.op, row),
                                                      MatrixValue(report.op, worst)) > 1;
        if (worse) worst = row;
    }
    return worst;
}

std::string NetTableText(const NetReport& report) {
    const fabric::NetTableSource& source = report.source;
    std::string text;
    switch (source.kind) {
        case fabric::NetTableSource::kBuiltIn:
            text = fmt::format("# built in ({})\n", source.why);
            break;
        case fabric::NetTableSource::kCached:
            text = fmt::format("# from {}, checked in {:.0f} ms\n", source.path, source.took_ms);
            break;
        case fabric::NetTableSource::kMeasured:
            text = fmt::format("# measured in {:.0f} ms{}{}\n", source.took_ms,
                               source.why.empty() ? "" : ": ", source.why);
            break;
    }
    text += fmt::format("{:<14} {:>12} {:>18} {:>5} {:>10}\n", "collective", "up to bytes",
                        "algorithm", "wire", "us");
    for (coll::Collective collective : coll::kCollectives) {
        for (const coll::TuningRow& row : report.table->rows(collective)) {
            const bool any = row.max_bytes == std::numeric_limits<size_t>::max();
            text += fmt::format(
                "{:<14} {:>12} {:>18} {:>5} {:>10}\n", coll::CollectiveName(collective),
                any ? "any" : std::to_string(row.max_bytes),
                coll::AlgorithmName(row.choice.algorithm), coll::WireName(row.choice.wire),
                row.p50_us > 0 ? fmt::format("{:.2f}", row.p50_us) : "-");
        }
    }
    return text;
}

std::string NetHints(const NetReport& report, const NetRow& sync) {
    const int ranks = report.ranks();
    const Example example = ExampleOf(ranks);
    const double loss_ms = sync.timings.typical_us * static_cast<double>(example.syncs) * 1e-3;
    const double even_ms = loss_ms * ranks / (ranks - 1);
    std::string text;
    if (example.syncs > 0) {
        text = fmt::format(
            "Tensor parallelism over these {} ranks pays for a deep model that takes more than "
            "{:.{}f} ms per token on one rank; for a faster model use --pp {}, or fewer ranks.\n",
            ranks, even_ms, even_ms < 1 ? 2 : 1, ranks);
    }
    if (ranks == 2) return text;
    const coll::Choice large = report.table->For(coll::Collective::kAllReduce, size_t{4} << 20);
    if (large.algorithm == coll::Algorithm::kRing) {
        return text +
               "Large vectors travel around a ring; a chain of direct cables between neighbors "
               "is enough.\n";
    }
    return text + fmt::format(
                      "Large vectors travel directly between all ranks ({}), which needs a switch "
                      "or a cable between every pair.\n",
                      coll::AlgorithmName(large.algorithm));
}

std::string TokenWords(const NetReport& report, const NetRow& sync) {
    const double us = sync.timings.typical_us;
    const std::string words = fmt::format("A sync of 8 KB costs {:.{}f} us", us, us < 10 ? 2 : 1);
    const Example example = ExampleOf(report.ranks());
    if (example.syncs == 0) return words + ".\n";
    return words + fmt::format(
                       "; a {}-layer model at TP={} spends {:.2f} ms per token on the wire ({} "
                       "syncs over {}: two per layer, one for the embedding).\n",
                       example.layers, report.ranks(),
                       us * static_cast<double>(example.syncs) * 1e-3, example.syncs,
                       report.transport);
}

}  // namespace weft::cli
