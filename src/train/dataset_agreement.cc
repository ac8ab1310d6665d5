#include "train/dataset_agreement.h"

#include <algorithm>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "model_files/lora/adapter.h"
#include "train/data/day.h"

namespace weft::train {
namespace {

// Since the last work of a rank that is late (ProcessWork).
constexpr int64_t kSameDataMs = 3'600'000;
constexpr size_t kMostNamed = 8;        // ranks in an error
constexpr size_t kMostNameBytes = 120;  // of a file name, counted from its end

Result<uint64_t> SumOfFile(const std::string& path, uint64_t seed) {
    WEFT_ASSIGN(const File file, File::Open(path));
    std::vector<std::byte> buffer(1 << 20);
    for (uint64_t at = 0; at < file.size_bytes(); at += buffer.size()) {
        const auto piece =
            std::span(buffer).first(std::min<uint64_t>(buffer.size(), file.size_bytes() - at));
        WEFT_TRY(file.ReadAt(at, piece));
        seed = Checksum64(piece, seed);
    }
    return seed;
}

struct RankData {
    DataIdentity data;
    uint64_t adapter = 0;
};

Result<RankData> ParseRankData(const std::string& text) {
    const nlohmann::json parsed = JsonOrDiscarded(text);
    const auto malformed = [] {
        return MakeError(ErrorCode::kCorrupt, "a rank's description of its data is malformed");
    };
    if (!parsed.is_object()) return malformed();
    RankData theirs;
    WEFT_ASSIGN(theirs.data, IdentityFrom(parsed));
    const auto name = parsed.find("name"), adapter = parsed.find("adapter");
    if (name == parsed.end() || !name->is_string() || adapter == parsed.end() ||
        !adapter->is_number_unsigned()) {
        return malformed();
    }
    theirs.data.name = name->get<std::string>();
    theirs.adapter = adapter->get<uint64_t>();
    return theirs;
}

std::string Difference(const RankData& theirs, const RankData& first) {
    std::string text = DifferenceOf(theirs.data, first.data, "there", "on rank 0");
    if (theirs.adapter != first.adapter) {
        text +=
            fmt::format("{}the adapter of --lora-from is not rank 0's", text.empty() ? "" : "; ");
    }
    if (text.empty()) return text;
    return fmt::format("{}; the data are {} there, {} on rank 0", text, theirs.data.name,
                       first.data.name);
}

}  // namespace

Result<uint64_t> SumOfAdapter(const std::string& folder) {
    uint64_t sum = 0;
    if (folder.empty()) return sum;
    for (const std::string& path :
         {folder + model_files::kAdapterConfigName, model_files::AdapterTensorsPath(folder)}) {
        WEFT_ASSIGN(sum, SumOfFile(path, sum));
    }
    return sum;
}

Status AgreeOnData(cluster::Cluster& cluster, const DataIdentity& mine,
                   const std::string& adapter) {
    if (cluster.size() == 1) return {};
    nlohmann::json telling = JsonOf(mine);
    const size_t cut = mine.name.size() - std::min(mine.name.size(), kMostNameBytes);
    telling["name"] = mine.name.substr(cut);
    WEFT_ASSIGN(telling["adapter"], SumOfAdapter(adapter));
    const std::string text = telling.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster.AllGather("training data", text, Deadline::In(kSameDataMs)));
    WEFT_ASSIGN(const RankData first, ParseRankData(texts.front()));
    std::string differ;
    size_t count = 0;
    for (size_t rank = 1; rank < texts.size(); ++rank) {
        WEFT_ASSIGN(const RankData theirs, ParseRankData(texts[rank]));
        const std::string difference = Difference(theirs, first);
        if (difference.empty() || count++ >= kMostNamed) continue;
        differ += fmt::format("{}rank {} (host {}): {}", differ.empty() ? "" : ". ", rank,
                              cluster.host(static_cast<int>(rank)).name, difference);
    }
    if (count == 0) return {};
    if (count > kMostNamed) differ += fmt::format(". And {} more ranks", count - kMostNamed);
    return MakeError(ErrorCode::kUsage,
                     "ranks would learn from different data. {}. Copy the files of rank 0 (host "
                     "{}) to all hosts, or name files in a folder that they share",
                     differ, cluster.host(0).name);
}

Result<std::string> OtherData(const nlohmann::json& state, const DataIdentity& mine,
                              const std::string& checkpoint, bool says) {
    const auto content = state.find("content");
    if (content == state.end()) {
        if (says) {
            Log(LogLevel::kWarning,
                "{}: was written by a version that did not record the content of its data: of {}, "
                "Weft can check only the number",
                checkpoint, mine.name);
        }
        return std::string();
    }
    auto theirs = IdentityFrom(*content);
    if (!theirs.ok()) {
        return MakeError(ErrorCode::kCorrupt, "{}: its state: {}", checkpoint,
                         theirs.error().message);
    }
    std::string text = DifferenceOf(mine, *theirs, "here", "then");
    return text.empty() ? text : ": " + text;
}

Result<std::string> TakeDay(const nlohmann::json& state, const std::string& checkpoint,
                            DataSet& data) {
    const auto found = state.find("day");
    if (found != state.end() && !found->is_string()) {
        return MakeError(ErrorCode::kCorrupt, "{}: its state: 'day' is {}; expected a string",
                         checkpoint, found->type_name());
    }
    std::string day = found == state.end() ? "" : found->get<std::string>();
    const auto now_s = NoonOf(day);
    if (!now_s.ok()) {
        return MakeError(ErrorCode::kCorrupt, "{}: its state: {}", checkpoint,
                         now_s.error().message);
    }
    data.SetNow(*now_s);
    return day;
}

Result<int64_t> SeekTo(const Checkpoint& checkpoint, const TrainJob& job, const DataIdentity& mine,
                       bool says, Loader& loader) {
    const nlohmann::json& state = checkpoint.manifest().state;
    Cursor cursor;
    int64_t begin = 0;
    try {
        WEFT_ASSIGN(std::string other, OtherData(state, mine, checkpoint.folder(), says));
        if (other.empty() && !loader.MayGoOnFrom(state.at("data").get<uint64_t>())) {
            other =
                ", or another --seq-len, --seed, --pack, --shuffle or --long, or without its "
                "--skip-bad";
        }
        // (If the checkpoint does not record its data, --new-data applies.)
        const bool unknown = state.find("content") == state.end();
        if (job.data.renewed && (unknown || !other.empty())) {
            if (says) Log(LogLevel::kInfo, "the data changed: they are read from the start");
            return checkpoint.manifest().step;
        }
        if (!other.empty()) {
            return MakeError(
                ErrorCode::kUsage,
                "{}: was written with other data{}, so its position in them does not apply. "
                "With --new-data, training goes on at the start of the given data",
                checkpoint.folder(), other);
        }
        begin = state.value("data_begin", int64_t{0});
        state.at("cursor").at(0).get_to(cursor.epoch);
        state.at("cursor").at(1).get_to(cursor.index);
        state.at("cursor").at(2).get_to(cursor.given);
    } catch (const std::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "{}: its state: {}", checkpoint.folder(),
                         error.what());
    }
    WEFT_TRY(loader.Seek(cursor));
    return begin;
}

}  // namespace weft::train
