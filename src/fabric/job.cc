#include "fabric/job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/field_codec.h"
#include "coll/tuning.h"

namespace weft::fabric {
namespace {

constexpr size_t kMostSizes = 256;
constexpr size_t kMostWords = 16;
constexpr double kMostSeconds = 3600;

std::optional<NetOp> FindNetOp(std::string_view name) {
    for (const NetOp op : kNetOps) {
        if (name == NetOpName(op)) return op;
    }
    return std::nullopt;
}

constexpr auto kJobFields = [](auto& job, auto& visit) {
    visit.Kind(kNetJobKind);
    visit.Named("op", job.op, NetOpName, FindNetOp);
    visit("sizes", job.sizes, FieldRange{1, kMostNetBytes});
    visit("iterations", job.budget.iterations, FieldRange{0, coll::kMostIterations});
    visit("seconds", job.budget.seconds,
          FieldRange{std::numeric_limits<double>::min(), kMostSeconds});
    visit("algorithms", job.algorithms);
    visit("wires", job.wires);
    visit.Named("net_table", job.net_table, NetTableName, ParseNetTable);
};

constexpr auto kRowFields = [](auto& row, auto& visit) {
    visit("from", row.from);
    visit("to", row.to);
    visit("size", row.size);
    visit("algorithm", row.algorithm);
    visit("wire", row.wire);
    visit("errors", row.errors);
    visit("min_us", row.timings.min_us);
    visit("max_us", row.timings.max_us);
    visit("typical_us", row.timings.typical_us);
    visit("average_us", row.timings.average_us);
    visit("stdev_us", row.timings.stdev_us);
    visit("p99_us", row.timings.p99_us);
    visit("p999_us", row.timings.p999_us);
    visit("iterations", row.timings.iterations);
    visit("average_bytes_s", row.average_bytes_s);
    visit("peak_bytes_s", row.peak_bytes_s);
    visit("messages_s", row.messages_s);
};

Status CheckLists(const NetJob& job) {
    const auto corrupt = [](std::string_view what) {
        return MakeError(ErrorCode::kCorrupt, "net job from rank 0: {}", what);
    };
    if (job.sizes.empty() || job.sizes.size() > kMostSizes) {
        return corrupt(fmt::format("{} sizes; 1 to {} expected", job.sizes.size(), kMostSizes));
    }
    if (job.algorithms.empty() || job.algorithms.size() > kMostWords || job.wires.empty() ||
        job.wires.size() > kMostWords) {
        return corrupt("no algorithms or wire types, or far too many");
    }
    for (const std::string& name : job.algorithms) WEFT_TRY(CheckAlgorithm(job.op, name));
    for (const std::string& name : job.wires) WEFT_TRY(coll::ParseWire(name));
    return {};
}

}  // namespace

const char* NetOpName(NetOp op) {
    switch (op) {
        case NetOp::kLatency: return "lat";
        case NetOp::kBandwidth: return "bw";
        case NetOp::kAllReduce: return "allreduce";
        case NetOp::kAllGather: return "allgather";
        case NetOp::kReduceScatter: return "reducescatter";
        case NetOp::kAllToAll: return "alltoall";
        case NetOp::kTable: return "table";
    }
    return "?";
}

bool IsOfPairs(NetOp op) {
    return op == NetOp::kLatency || op == NetOp::kBandwidth;
}

coll::Collective CollectiveOf(NetOp op) {
    switch (op) {
        case NetOp::kLatency:
        case NetOp::kBandwidth:
        case NetOp::kTable:
        case NetOp::kAllReduce: return coll::Collective::kAllReduce;
        case NetOp::kAllGather: return coll::Collective::kAllGather;
        case NetOp::kReduceScatter: return coll::Collective::kReduceScatter;
        case NetOp::kAllToAll: return coll::Collective::kAllToAll;
    }
    return coll::Collective::kAllReduce;
}

Status CheckAlgorithm(NetOp op, const std::string& algorithm) {
    WEFT_ASSIGN(const coll::Algorithm asked, coll::ParseAlgorithm(algorithm));
    const std::vector<coll::Algorithm> known = coll::AlgorithmsOf(CollectiveOf(op));
    if (asked == coll::Algorithm::kAuto || std::ranges::find(known, asked) != known.end()) {
        return {};
    }
    std::vector<std::string> names;
    for (const coll::Algorithm one : known) names.emplace_back(coll::AlgorithmName(one));
    return MakeError(ErrorCode::kUsage, "{} does not use {}, but {}", NetOpName(op), algorithm,
                     fmt::join(names, " or "));
}

std::string NetJobToJson(const NetJob& job) {
    return EncodeFields(job, kJobFields);
}

Result<NetJob> NetJobFromJson(const std::string& text) {
    NetJob job;
    WEFT_TRY(DecodeFields("net job from rank 0", text, kJobFields, job));
    WEFT_TRY(CheckLists(job));
    return job;
}

std::string NetRowToJson(const NetRow& row) {
    return EncodeFields(row, kRowFields);
}

Result<NetRow> NetRowFromJson(const std::string& text) {
    NetRow row;
    WEFT_TRY(DecodeFields("a rank's figures", text, kRowFields, row));
    return row;
}

double AlgorithmBandwidth(const NetRow& row) {
    if (row.average_bytes_s > 0) return row.average_bytes_s;
    const double us = row.timings.typical_us;
    return us > 0 ? static_cast<double>(row.size) / us * 1e6 : 0;
}

double BusFactor(NetOp op, int ranks) {
    const double n = static_cast<double>(ranks);
    switch (op) {
        case NetOp::kLatency:
        case NetOp::kBandwidth: return 1;
        case NetOp::kTable:
        case NetOp::kAllReduce: return 2 * (n - 1) / n;
        case NetOp::kAllGather:
        case NetOp::kReduceScatter:
        case NetOp::kAllToAll: return (n - 1) / n;
    }
    return 1;
}

}  // namespace weft::fabric
