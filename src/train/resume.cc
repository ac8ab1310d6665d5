#include "train/resume.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "train/checkpoint/writer.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;
using model_files::hf::Json;

// Another rank may read its share of hundreds of GB meanwhile; heartbeats detect a lost one.
constexpr int64_t kReadMs = 3'600'000;
constexpr size_t kMostCandidates = 64;
constexpr int kMostBad = 1000;

std::string TextOf(const Verdict& verdict) {
    const Json json = {{"fault", verdict.fault}, {"damaged", verdict.damaged}};
    return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// The first fault of any rank, but damage takes precedence.
Result<Verdict> VerdictOf(const std::vector<std::string>& texts) {
    Verdict all;
    for (size_t rank = 0; rank < texts.size(); ++rank) {
        WEFT_ASSIGN(const Json said,
                    model_files::hf::ParseJson(texts[rank], "a rank's report of its checkpoints"));
        const std::string fault = said.value("fault", "");
        all.damaged = all.damaged || said.value("damaged", false);
        if (!all.fault.empty() || fault.empty()) continue;
        all.fault = rank == 0 ? fault : fmt::format("rank {}: {}", rank, fault);
    }
    return all;
}

// Returns "step-00000600.bad", or ".bad-2", ...; empty: the folder could not be renamed.
std::string Rename(const std::string& folder) {
    for (int number = 1; number <= kMostBad; ++number) {
        std::string to = folder + kAsideSuffix;
        if (number > 1) to += fmt::format("-{}", number);
        std::error_code failed;
        if (fs::exists(to, failed) || failed) continue;
        fs::rename(folder, to, failed);
        return failed ? "" : to;
    }
    return "";
}

}  // namespace

Status CheckData(const Checkpoint& checkpoint, int rank, int ranks) {
    const size_t files = checkpoint.manifest().files.size();
    for (auto i = static_cast<size_t>(rank); i < files; i += static_cast<size_t>(ranks)) {
        WEFT_TRY(checkpoint.CheckFile(i));
    }
    return {};
}

Result<Verdict> OpenWhole(const std::string& folder, cluster::Cluster& cluster,
                          std::optional<Checkpoint>& opened) {
    Verdict mine;
    auto open = Checkpoint::Open(folder);
    const Status good =
        open.ok() ? CheckData(*open, cluster.rank(), cluster.size()) : Status(open.error());
    if (!good.ok()) {
        // (Another rank may not see all files if folders are not shared.)
        const bool surely = open.ok() || cluster.rank() == 0;
        mine = {good.error().message, surely && good.error().code == ErrorCode::kCorrupt};
    }
    WEFT_ASSIGN(const std::vector<std::string> texts,
                cluster.AllGather("is the checkpoint whole", TextOf(mine), Deadline::In(kReadMs)));
    WEFT_ASSIGN(Verdict verdict, VerdictOf(texts));
    if (verdict.fault.empty()) opened = std::move(*open);
    return verdict;
}

Result<std::optional<Checkpoint>> ResumeSearch::Find(const std::string& last) {
    faults_.clear();
    damaged_.clear();
    Json list = Json::array();
    const bool one = last.empty() && words_.resume != "auto" && !words_.resume.empty() &&
                     cluster_.rank() == 0 && JobFolderOf(words_.resume).empty();
    if (cluster_.rank() == 0) {
        WEFT_ASSIGN(const std::vector<std::string> candidates, Candidates(last));
        for (const std::string& folder : candidates) list.push_back(folder);
    }
    const Json mine = {{"folders", list}, {"one", one}};
    WEFT_ASSIGN(const std::vector<std::string> said,
                cluster_.AllGather("checkpoints to go on from",
                                   mine.dump(-1, ' ', true, Json::error_handler_t::replace),
                                   Deadline::In(kReadMs)));
    WEFT_ASSIGN(const Json agreed,
                model_files::hf::ParseJson(said.front(), "rank 0's checkpoints"));
    for (const Json& entry : agreed.value("folders", Json::array())) {
        const std::string folder = entry.is_string() ? entry.get<std::string>() : "";
        WEFT_TRY(cluster_.folders().Check(folder));
        std::optional<Checkpoint> opened;
        if (agreed.value("one", false)) {
            WEFT_ASSIGN(opened, Checkpoint::Open(folder));
            return opened;
        }
        WEFT_ASSIGN(const std::string fault, FaultOf(folder, opened));
        if (!fault.empty()) continue;
        if (cluster_.rank() == 0) {
            PutAside();
            Log(LogLevel::kInfo, "going on from {}", folder);
        }
        return opened;
    }
    if (cluster_.rank() != 0) return std::optional<Checkpoint>();
    if (faults_.empty()) {
        if (words_.resume == "auto") LogNoCheckpoint();
        return std::optional<Checkpoint>();
    }
    return MakeError(
        ErrorCode::kCorrupt,
        "none of the {} checkpoints is complete; the error of the newest: {}. Weft keeps them. "
        "--overwrite starts over and removes them; --resume can name another job's checkpoint",
        faults_.size(), faults_.front());
}

// Rank 0: reports that --resume auto starts at the first update. Warns if an earlier job ran here,
// whose checkpoint may have been deleted.
void ResumeSearch::LogNoCheckpoint() {
    if (std::exchange(warned_none_, true)) return;
    const auto has = [&](const char* name) {
        std::error_code failed;
        return fs::exists(fs::path(words_.folder) / name, failed) && !failed;
    };
    const bool ran = has("log.csv") || has(kCheckpointsName);
    Log(ran ? LogLevel::kWarning : LogLevel::kInfo,
        "--resume auto: {} has no checkpoint{}. Training begins at the first update", words_.folder,
        ran ? ", though an earlier job has written there" : "");
}

// Rank 0: the candidates, the newest first.
Result<std::vector<std::string>> ResumeSearch::Candidates(const std::string& last) {
    std::string dir = words_.folder;
    if (last.empty()) {
        if (words_.resume.empty()) return std::vector<std::string>();
        if (words_.resume != "auto") dir = JobFolderOf(words_.resume);
        if (dir.empty()) return std::vector<std::string>{words_.resume};
    }
    std::error_code failed;
    const bool named = last.empty() && words_.resume != "auto";
    if (named && !std::filesystem::exists(words_.resume, failed) && !failed) {
        return MakeError(ErrorCode::kNotFound, "--resume {}: there is no such file or folder",
                         words_.resume);
    }
    std::vector<std::string> all = ListCheckpoints(dir, last.empty() ? &faults_ : nullptr);
    for (const std::string& fault : faults_) {
        Log(LogLevel::kWarning, "{}; Weft looks for an older checkpoint", fault);
    }
    Leftovers leftovers = ListLeftovers(dir);
    if (dir == words_.folder) damaged_ = std::move(leftovers.broken);
    if (last.empty() && all.empty()) {
        for (const std::string& folder : leftovers.aside) {
            faults_.push_back(folder + " was found damaged by an earlier run");
        }
    }
    if (!last.empty()) {
        const auto at = std::ranges::find(all, last);
        if (at != all.end()) {
            all.erase(all.begin(), at);
        } else if (all.empty() || IsCheckpoint(last)) {
            all = {last};  // of another job, or missing
        }
    }
    if (all.empty() && faults_.empty() && words_.resume != "auto") {
        return MakeError(ErrorCode::kNotFound,
                         "--resume {}: there is no checkpoint. Name a folder of one step, or one "
                         "that has checkpoints/ in it",
                         words_.resume);
    }
    if (all.size() > kMostCandidates) all.resize(kMostCandidates);
    return all;
}

// The fault of a checkpoint, the same on all ranks; "": none, and it is open.
Result<std::string> ResumeSearch::FaultOf(const std::string& folder,
                                          std::optional<Checkpoint>& opened) {
    WEFT_ASSIGN(const Verdict verdict, OpenWhole(folder, cluster_, opened));
    if (!verdict.fault.empty() && cluster_.rank() == 0) {
        faults_.push_back(verdict.fault);
        const bool own = folder.starts_with(words_.folder + "/");
        (verdict.damaged && own ? damaged_ : bad_).push_back(folder);
        Log(LogLevel::kWarning, "{}; Weft looks for an older checkpoint", verdict.fault);
    }
    return verdict.fault;
}

// Rank 0: renames damaged checkpoints, once an older one was found.
void ResumeSearch::PutAside() {
    for (const std::string& folder : damaged_) {
        const std::string renamed = Rename(folder);
        if (renamed.empty()) bad_.push_back(folder);
        if (!renamed.empty()) Log(LogLevel::kInfo, "renamed {} to {}", folder, renamed);
    }
    damaged_.clear();
}

}  // namespace weft::train
