#include "engine/net_job.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "coll/tuning.h"

namespace weft::engine {
namespace {

constexpr size_t kMostSizes = 256;
constexpr size_t kMostWords = 16;

Status CheckRanges(const NetJob& job) {
    const auto corrupt = [](std::string_view what) {
        return MakeError(ErrorCode::kCorrupt, "net job from rank 0: {}", what);
    };
    if (job.sizes.empty() || job.sizes.size() > kMostSizes) {
        return corrupt(fmt::format("{} sizes; 1 to {} expected", job.sizes.size(), kMostSizes));
    }
    for (int64_t size : job.sizes) {
        if (size >= 1 && size <= kMostNetBytes) continue;
        return corrupt(fmt::format("a size of {} bytes; 1 to {} expected", size, kMostNetBytes));
    }
    const bool time = job.budget.seconds > 0 && job.budget.seconds <= 3600;
    if (!time || job.budget.iterations < 0 || job.budget.iterations > coll::kMostIterations) {
        return corrupt("its time or its iterations are out of range");
    }
    if (job.algorithms.empty() || job.algorithms.size() > kMostWords || job.wires.empty() ||
        job.wires.size() > kMostWords) {
        return corrupt("no algorithms or wire types, or far too many");
    }
    for (const std::string& name : job.algorithms) WEFT_TRY(coll::ParseAlgorithm(name));
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

bool IsNetJob(const std::string& text) {
    const nlohmann::json json = JsonOrDiscarded(text);
    if (!json.is_object()) return false;
    const auto kind = json.find("kind");
    return kind != json.end() && *kind == "net";
}

std::string NetJobToJson(const NetJob& job) {
    return nlohmann::json{
        {"kind", "net"},
        {"op", NetOpName(job.op)},
        {"sizes", job.sizes},
        {"iterations", job.budget.iterations},
        {"seconds", job.budget.seconds},
        {"algorithms", job.algorithms},
        {"wires", job.wires},
        {"net_table", NetTableName(job.net_table)},
    }
        .dump();
}

Result<NetJob> NetJobFromJson(const std::string& text) {
    NetJob job;
    std::string op, table;
    try {
        const nlohmann::json json = JsonOrDiscarded(text);
        json.at("op").get_to(op);
        json.at("sizes").get_to(job.sizes);
        json.at("iterations").get_to(job.budget.iterations);
        json.at("seconds").get_to(job.budget.seconds);
        json.at("algorithms").get_to(job.algorithms);
        json.at("wires").get_to(job.wires);
        json.at("net_table").get_to(table);
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "net job from rank 0: {}", error.what());
    }
    bool known = false;
    for (NetOp candidate : kNetOps) {
        if (op != NetOpName(candidate)) continue;
        job.op = candidate;
        known = true;
    }
    if (!known) return MakeError(ErrorCode::kCorrupt, "net job from rank 0: no op '{}'", op);
    WEFT_ASSIGN(job.net_table, ParseNetTable(table));
    WEFT_TRY(CheckRanges(job));
    return job;
}

std::string NetRowToJson(const NetRow& row) {
    const coll::Timings& t = row.timings;
    return nlohmann::json{
        {"from", row.from},
        {"to", row.to},
        {"size", row.size},
        {"algorithm", row.algorithm},
        {"wire", row.wire},
        {"times",
         {t.min_us, t.max_us, t.typical_us, t.average_us, t.stdev_us, t.p99_us, t.p999_us}},
        {"iterations", t.iterations},
        {"rates", {row.average_bytes_s, row.peak_bytes_s, row.messages_s}},
        {"errors", row.errors},
    }
        .dump();
}

Result<NetRow> NetRowFromJson(const std::string& text) {
    NetRow row;
    try {
        const nlohmann::json json = JsonOrDiscarded(text);
        json.at("from").get_to(row.from);
        json.at("to").get_to(row.to);
        json.at("size").get_to(row.size);
        json.at("algorithm").get_to(row.algorithm);
        json.at("wire").get_to(row.wire);
        json.at("errors").get_to(row.errors);
        coll::Timings& t = row.timings;
        json.at("iterations").get_to(t.iterations);
        const auto times = json.at("times").get<std::array<double, 7>>();
        t.min_us = times[0];
        t.max_us = times[1];
        t.typical_us = times[2];
        t.average_us = times[3];
        t.stdev_us = times[4];
        t.p99_us = times[5];
        t.p999_us = times[6];
        const auto rates = json.at("rates").get<std::array<double, 3>>();
        row.average_bytes_s = rates[0];
        row.peak_bytes_s = rates[1];
        row.messages_s = rates[2];
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "a rank's figures: {}", error.what());
    }
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

}  // namespace weft::engine
