#include "fabric/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/home_folder.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output_file.h"
#include "coll/autotune.h"
#include "coll/time_table.h"

namespace weft::fabric {
namespace {

constexpr int64_t kTableExchangeMs = 60'000;
constexpr uint64_t kMostCacheBytes = 256 << 10;
// Increased when the measurement changes: older tables are then measured again.
constexpr int kTables = 5;

// The properties that times depend on, as the group's first rank sees them.
std::string Fingerprint(cluster::Cluster& cluster, const std::vector<int>& members) {
    std::string text =
        fmt::format("weft {}, tables {}, {} ranks", WEFT_VERSION, kTables, members.size());
    for (int rank : members) {
        const auto& link = cluster.fabric().links[static_cast<size_t>(rank)];
        text += fmt::format("; {} {} cores, {}", cluster.host(rank).boot_id,
                            cluster.host(rank).cores.size(),
                            link == nullptr ? "self" : link->peer().transport);
    }
    return text;
}

// "": the user has no cache folder.
std::string CachePath(const std::string& fingerprint) {
    const std::string folder = CacheFolder();
    if (folder.empty()) return "";
    const auto bytes = std::as_bytes(std::span(fingerprint));
    return fmt::format("{}/net/{}.json", folder, Hex(Sha256(bytes)).substr(0, 16));
}

// The tuner never chooses a lossy wire type; the tuner did not write a file with one.
bool IsLossless(const coll::Tuning& tuning) {
    for (coll::Collective collective : coll::kCollectives) {
        for (const coll::TuningRow& row : tuning.rows(collective)) {
            if (row.choice.wire != coll::WireType::kFull) return false;
        }
    }
    return true;
}

// A rank's message before the measurement.
struct Word {
    bool crowded = false;
    std::string table{};  // of a group's first rank: the text of the cached table; "": none
};

// Reads a table with this fingerprint from the file, if it has one.
void ReadCache(const std::string& path, const std::string& fingerprint, Word& word) {
    if (path.empty()) return;
    const auto text = ReadTextFile(path, kMostCacheBytes);
    if (!text.ok()) return;
    const nlohmann::json json = JsonOrDiscarded(*text);
    if (!json.is_object() || !json.contains("fingerprint") || !json.contains("table")) return;
    if (json["fingerprint"] != fingerprint || !json["table"].is_object()) return;
    std::string table =
        json["table"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto tuning = coll::Tuning::FromJson(table);
    if (!tuning.ok() || !IsLossless(*tuning) || !coll::IsMonotonic(*tuning)) return;
    word.table = std::move(table);
}

// If the write fails, the next run measures again.
void WriteCache(const std::string& path, const std::string& fingerprint,
                const coll::Tuning& tuning) {
    if (path.empty()) return;
    const nlohmann::ordered_json json{
        {"fingerprint", fingerprint},
        {"table", nlohmann::ordered_json::parse(tuning.ToJson(), nullptr, false)}};
    if (ReplaceFile(path, json.dump(1) + "\n").ok()) return;
    Log(LogLevel::kDebug, "the fabric's table could not be kept in {}", path);
}

Result<Word> ReadWord(const std::string& text) {
    const nlohmann::json json = JsonOrDiscarded(text);
    const bool good = json.is_object() && json.contains("crowded") && json.contains("table") &&
                      json["crowded"].is_boolean() && json["table"].is_string();
    if (!good)
        return MakeError(ErrorCode::kCorrupt,
                         "a rank's report about the fabric's table is malformed");
    return Word{json["crowded"].get<bool>(), json["table"].get<std::string>()};
}

coll::TuneOptions OptionsFor(cluster::Cluster& cluster, const std::vector<int>& members) {
    std::set<std::string> hosts;
    for (int rank : members) hosts.insert(cluster.host(rank).boot_id);
    coll::TuneOptions options;
    options.several_hosts = hosts.size() > 1 && hosts.size() < members.size();
    options.monitor = cluster.monitor();
    return options;
}

}  // namespace

const char* NetTableName(NetTable mode) {
    switch (mode) {
        case NetTable::kAuto: return "auto";
        case NetTable::kOff: return "off";
        case NetTable::kRemeasure: return "remeasure";
    }
    return "?";
}

Result<NetTable> ParseNetTable(std::string_view name) {
    for (NetTable mode : {NetTable::kAuto, NetTable::kOff, NetTable::kRemeasure}) {
        if (name == NetTableName(mode)) return mode;
    }
    return MakeError(ErrorCode::kUsage, "--net-table {}: expected auto, off or remeasure", name);
}

Result<NetTableSource> TuneGroup(cluster::Cluster& cluster, coll::Comm& comm,
                                 const std::vector<int>& members, NetTable mode) {
    NetTableSource source;
    if (mode == NetTable::kOff) source.why = "asked for";
    if (mode == NetTable::kOff || cluster.size() == 1) return source;
    const int64_t begin_ns = NowNs();
    const bool first = cluster.rank() == members.front();
    const std::string fingerprint = Fingerprint(cluster, members);
    if (first) source.path = CachePath(fingerprint);
    Word mine{cluster.cores_shared()};
    if (first && mode == NetTable::kAuto) ReadCache(source.path, fingerprint, mine);
    const nlohmann::json word{{"crowded", mine.crowded}, {"table", mine.table}};
    WEFT_ASSIGN(const std::vector<std::string> words,
                cluster.AllGather("net table", word.dump(), Deadline::In(kTableExchangeMs)));
    Word decisive;
    for (int rank : members) {
        WEFT_ASSIGN(const Word theirs, ReadWord(words[static_cast<size_t>(rank)]));
        const bool crowded = decisive.crowded || theirs.crowded;
        if (rank == members.front()) decisive = theirs;
        decisive.crowded = crowded;
    }
    const auto took = [&](NetTableSource::Kind kind) {
        source.kind = kind;
        source.took_ms = static_cast<double>(NowNs() - begin_ns) * 1e-6;
        return source;
    };
    if (decisive.crowded) {
        source.why = "a host has more ranks than cores, so measured times would be wrong";
        return took(NetTableSource::kBuiltIn);
    }
    if (!decisive.table.empty()) {
        WEFT_ASSIGN(coll::Tuning cached, coll::Tuning::FromJson(decisive.table));
        WEFT_ASSIGN(const bool holds, coll::TuningHolds(comm, cached, cluster.monitor()));
        if (holds) {
            comm.SetTuning(std::move(cached));
            return took(NetTableSource::kCached);
        }
        source.why = "the table of an earlier run no longer holds";
    }
    WEFT_ASSIGN(coll::Tuning measured, coll::MeasureTuning(comm, OptionsFor(cluster, members)));
    comm.SetTuning(measured);
    if (first) WriteCache(source.path, fingerprint, measured);
    return took(NetTableSource::kMeasured);
}

void ForgetTable(const NetTableSource& source) {
    if (!source.path.empty()) ::unlink(source.path.c_str());
}

}  // namespace weft::fabric
