#include "coll/tuning.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "coll/hosts.h"

namespace weft::coll {
namespace {

constexpr size_t kAnySize = std::numeric_limits<size_t>::max();
// A decode step's all-reduces are seldom larger.
constexpr size_t kStepBytes = size_t{64} << 10;
constexpr size_t kStepRatio = 8;
// Far above any sensible table.
constexpr size_t kMostRows = 256;
constexpr size_t kMostJsonBytes = size_t{1} << 20;

// One-shot sends n - 1 times the bytes once, two-shot 2 (n - 1) / n times in two exchanges. So they
// cost the same if an empty exchange takes as long as sending
//     bytes (n - 1) (n - 2) / n.
// The constants are the bytes that one exchange could have sent, measured on a 2-core EPYC VM: shm
// 0.35 us at 12 GB/s, tcp on loopback 5 us at 3.5 GB/s (10 Gbit/s Ethernet: 25 us at 1.2 GB/s).
constexpr size_t kExchangeShm = size_t{4} << 10;
constexpr size_t kExchangeTcp = size_t{24} << 10;
// Two ranks send the same either way; beyond the cache two-shot reads less (1 MiB: 63 against 82 us
// over shm; over tcp 198 against 273, and 118 against 132 at 512 KiB).
constexpr size_t kTwoRanksShm = size_t{512} << 10, kTwoRanksTcp = size_t{256} << 10;
// From this size on every rank sends to its neighbors only, so that no switch port is flooded.
constexpr size_t kRingBytes = size_t{4} << 20;
constexpr int kRingRanks = 4;

struct AlgorithmRow {
    Algorithm algorithm;
    const char* name;
    int least_ranks;
    bool several_hosts;
};
#define WEFT_ROW(name, ...) {Algorithm::k##name, __VA_ARGS__},
constexpr AlgorithmRow kRows[] = {WEFT_ALGORITHMS(WEFT_ROW)};
#undef WEFT_ROW

// Hosts with several ranks: their leaders send each other everything, in one exchange. Around the
// ring a host's link carries twice the bytes, for any number of hosts, in 2 (n - 1) exchanges.
std::vector<TuningRow> AllReduceRowsOfHosts(const GroupShape& shape) {
    TuningRow leaders{kAnySize, {Algorithm::kHierarchical, WireType::kFull}, 0};
    const double n = shape.ranks, saved = shape.hosts - 1 - 2 * (n - 1) / n;
    if (saved < 1) return {leaders};
    const auto exchange = static_cast<double>(shape.over_tcp ? kExchangeTcp : kExchangeShm);
    leaders.max_bytes = static_cast<size_t>(2 * (n - 1) * exchange / saved);
    return {leaders, {kAnySize, {Algorithm::kRing, WireType::kFull}, 0}};
}

std::vector<TuningRow> AllReduceRows(const GroupShape& shape) {
    const auto row = [](size_t max_bytes, Algorithm algorithm) {
        return TuningRow{max_bytes, {algorithm, WireType::kFull}, 0};
    };
    if (shape.HoldSeveral()) return AllReduceRowsOfHosts(shape);
    if (shape.ranks <= 2) {
        const size_t most = shape.over_tcp ? kTwoRanksTcp : kTwoRanksShm;
        return {row(most, Algorithm::kOneShot), row(kAnySize, Algorithm::kTwoShot)};
    }
    const size_t n = static_cast<size_t>(shape.ranks);
    const size_t exchange = shape.over_tcp ? kExchangeTcp : kExchangeShm;
    const size_t one_shot = exchange * n / (n - 1) / (n - 2);
    if (!shape.over_tcp || shape.ranks < kRingRanks) {
        return {row(one_shot, Algorithm::kOneShot), row(kAnySize, Algorithm::kTwoShot)};
    }
    return {row(one_shot, Algorithm::kOneShot), row(kRingBytes - 1, Algorithm::kTwoShot),
            row(kAnySize, Algorithm::kRing)};
}

// Hierarchical sums wait for each host in turn, while direct sends go to the owners at once; the
// busiest host has less traffic. Four ranks on two busy cores, which also wait for their turn,
// gained from 1 MB on over 1 Gbit/s, where the wait alone equals 96 KB.
constexpr double kChainWaits = 4;
std::vector<TuningRow> ReduceScatterRows(const GroupShape& shape) {
    const TuningRow straight{kAnySize, {Algorithm::kOneShot, WireType::kFull}, 0};
    if (!shape.HoldSeveral()) return {straight};
    const double saved =
        StraightLoad(shape.ranks, shape.hosts) - ChainLoad(shape.ranks, shape.hosts, 1);
    if (saved <= 0) return {straight};
    const auto waits = kChainWaits * static_cast<double>(shape.hosts - 1) *
                       static_cast<double>(shape.over_tcp ? kExchangeTcp : kExchangeShm);
    TuningRow small = straight;
    small.max_bytes = static_cast<size_t>(waits / saved);
    return {small, {kAnySize, {Algorithm::kHierarchical, WireType::kFull}, 0}};
}

Result<TuningRow> RowFromJson(const nlohmann::json& json) {
    const auto field = [&](const char* name, bool (nlohmann::json::*is)() const noexcept) {
        const auto found = json.is_object() ? json.find(name) : json.end();
        const bool good = json.is_object() && found != json.end() && ((*found).*is)();
        return good ? &*found : nullptr;
    };
    const nlohmann::json* bytes = field("max_bytes", &nlohmann::json::is_number_unsigned);
    const nlohmann::json* algorithm = field("algorithm", &nlohmann::json::is_string);
    const nlohmann::json* wire = field("wire", &nlohmann::json::is_string);
    const nlohmann::json* p50 = field("p50_us", &nlohmann::json::is_number);
    if (bytes == nullptr || algorithm == nullptr || wire == nullptr || p50 == nullptr) {
        return MakeError(ErrorCode::kCorrupt,
                         "a row of a tuning table needs max_bytes, algorithm, wire and p50_us");
    }
    TuningRow row;
    row.max_bytes = bytes->get<size_t>();
    WEFT_ASSIGN(row.choice.algorithm, ParseAlgorithm(algorithm->get_ref<const std::string&>()));
    WEFT_ASSIGN(row.choice.wire, ParseWire(wire->get_ref<const std::string&>()));
    row.p50_us = p50->get<double>();
    return row;
}

}  // namespace

const char* CollectiveName(Collective collective) {
    switch (collective) {
        case Collective::kAllReduce: return "all_reduce";
        case Collective::kAllGather: return "all_gather";
        case Collective::kReduceScatter: return "reduce_scatter";
        case Collective::kAllToAll: return "all_to_all";
        case Collective::kBroadcast: return "broadcast";
    }
    return "?";
}

const char* AlgorithmName(Algorithm algorithm) {
    for (const AlgorithmRow& row : kRows) {
        if (row.algorithm == algorithm) return row.name;
    }
    return "auto";
}

std::vector<std::string> AlgorithmNames() {
    std::vector<std::string> names;
    for (Algorithm algorithm : kAlgorithms) names.emplace_back(AlgorithmName(algorithm));
    return names;
}

Result<Algorithm> ParseAlgorithm(std::string_view name) {
    for (Algorithm algorithm : kAlgorithms) {
        if (name == AlgorithmName(algorithm)) return algorithm;
    }
    return MakeError(ErrorCode::kUsage, "no algorithm is called '{}'; there are {}", name,
                     fmt::join(AlgorithmNames(), ", "));
}

std::vector<Algorithm> AlgorithmsFor(int ranks, bool several_hosts) {
    std::vector<Algorithm> algorithms;
    for (const AlgorithmRow& row : kRows) {
        const bool fits = ranks >= row.least_ranks && (several_hosts || !row.several_hosts);
        if (fits) algorithms.push_back(row.algorithm);
    }
    return algorithms;
}

std::vector<Algorithm> AlgorithmsOf(Collective collective) {
    switch (collective) {
        case Collective::kAllReduce: return AlgorithmsFor(kAnyRanks, true);
        case Collective::kAllGather:
        case Collective::kReduceScatter: return {Algorithm::kOneShot, Algorithm::kHierarchical};
        case Collective::kAllToAll:
        case Collective::kBroadcast: return {Algorithm::kOneShot};
    }
    return {};
}

const char* WireName(WireType wire) {
    switch (wire) {
        case WireType::kFull: return "full";
        case WireType::kBF16: return "bf16";
        case WireType::kQ8: return "q8";
        case WireType::kF16: return "f16";
    }
    return "?";
}

Result<WireType> ParseWire(std::string_view name) {
    if (name == "f32") return WireType::kFull;
    for (WireType wire : kWires) {
        if (name == WireName(wire)) return wire;
    }
    return MakeError(ErrorCode::kUsage,
                     "no wire type is called '{}'; there are full (or f32), bf16 and q8", name);
}

Tuning::Tuning() {
    for (auto& rows : rows_) rows = {{kAnySize, {Algorithm::kOneShot, WireType::kFull}, 0}};
}

Tuning Tuning::BuiltIn(const GroupShape& shape) {
    Tuning tuning;
    const Algorithm gather = shape.HoldSeveral() ? Algorithm::kHierarchical : Algorithm::kOneShot;
    for (const auto& [collective, rows] :
         {std::pair{Collective::kAllReduce, AllReduceRows(shape)},
          std::pair{Collective::kAllGather,
                    std::vector<TuningRow>{{kAnySize, {gather, WireType::kFull}, 0}}},
          std::pair{Collective::kReduceScatter, ReduceScatterRows(shape)}}) {
        const Status set = tuning.Set(collective, rows);
        WEFT_CHECK(set.ok());
    }
    return tuning;
}

Status Tuning::Set(Collective collective, std::vector<TuningRow> rows) {
    bool right = !rows.empty() && rows.size() <= kMostRows;
    for (size_t i = 0; right && i < rows.size(); i++) {
        right = rows[i].choice.algorithm != Algorithm::kAuto && rows[i].p50_us >= 0 &&
                (i == 0 || rows[i - 1].max_bytes < rows[i].max_bytes);
    }
    if (!right) {
        return MakeError(ErrorCode::kUsage,
                         "the {} rows for {} are not a valid table; expected 1 to {} rows with "
                         "ascending max_bytes, each with a time and an algorithm other than auto",
                         rows.size(), CollectiveName(collective), kMostRows);
    }
    rows_[static_cast<size_t>(collective)] = std::move(rows);
    return {};
}

Choice Tuning::For(Collective collective, size_t bytes, Choice asked) const {
    if (asked.algorithm != Algorithm::kAuto) return asked;
    const std::vector<TuningRow>& table = rows(collective);
    auto row = std::ranges::find_if(table, [&](const auto& r) { return bytes <= r.max_bytes; });
    if (row == table.end()) --row;
    return {row->choice.algorithm, asked.wire == WireType::kFull ? row->choice.wire : asked.wire};
}

std::string Tuning::ToJson() const {
    nlohmann::ordered_json json;
    for (Collective collective : kCollectives) {
        auto& list = json[CollectiveName(collective)] = nlohmann::ordered_json::array();
        for (const TuningRow& row : rows(collective)) {
            list.push_back({{"max_bytes", row.max_bytes},
                            {"algorithm", AlgorithmName(row.choice.algorithm)},
                            {"wire", WireName(row.choice.wire)},
                            {"p50_us", row.p50_us}});
        }
    }
    return json.dump(1);
}

Result<Tuning> Tuning::FromJson(std::string_view text) {
    const auto corrupt = [](std::string_view what) {
        return MakeError(ErrorCode::kCorrupt, "a tuning table: {}", what);
    };
    if (text.size() > kMostJsonBytes) return corrupt("longer than 1 MiB");
    const nlohmann::json json = JsonOrDiscarded(text);
    if (!json.is_object()) return corrupt("not a JSON object");
    Tuning tuning;
    for (Collective collective : kCollectives) {
        const auto list = json.find(CollectiveName(collective));
        if (list == json.end() || !list->is_array() || list->size() > kMostRows) {
            return corrupt(fmt::format("{} is not a list of rows", CollectiveName(collective)));
        }
        std::vector<TuningRow> rows;
        for (const nlohmann::json& item : *list) {
            const Result<TuningRow> row = RowFromJson(item);
            if (!row.ok()) return corrupt(row.error().message);
            rows.push_back(*row);
        }
        const Status set = tuning.Set(collective, std::move(rows));
        if (!set.ok()) return corrupt(set.error().message);
    }
    return tuning;
}

double PredictedUs(const Tuning& tuning, size_t bytes) {
    const TuningRow* below = nullptr;
    for (const TuningRow& row : tuning.rows(Collective::kAllReduce)) {
        if (row.p50_us <= 0) continue;
        if (row.max_bytes >= bytes) {
            if (below == nullptr) return row.p50_us;
            const double part = static_cast<double>(bytes - below->max_bytes) /
                                static_cast<double>(row.max_bytes - below->max_bytes);
            return below->p50_us + part * (row.p50_us - below->p50_us);
        }
        below = &row;
    }
    if (below == nullptr) return 0;
    return below->p50_us * static_cast<double>(bytes) / static_cast<double>(below->max_bytes);
}

double UsAByte(const Tuning& tuning) {
    const auto largest = [&](size_t most) {
        const TuningRow* found = nullptr;
        for (const TuningRow& row : tuning.rows(Collective::kAllReduce)) {
            if (row.p50_us > 0 && row.max_bytes <= most) found = &row;
        }
        return found;
    };
    const TuningRow* high = largest(kStepBytes);
    const TuningRow* low = high == nullptr ? nullptr : largest(high->max_bytes / kStepRatio);
    if (low == nullptr) return 0;
    const auto bytes = static_cast<double>(high->max_bytes - low->max_bytes);
    return std::max(0.0, (high->p50_us - low->p50_us) / bytes);
}

}  // namespace weft::coll
