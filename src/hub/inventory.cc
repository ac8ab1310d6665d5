#include "hub/inventory.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "hub/part.h"
#include "hub/short_names.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRepoPrefix = "models--";
constexpr uint64_t kMostIndex = 64 << 20;

std::vector<fs::path> EntriesOf(const std::string& folder) {
    std::vector<fs::path> entries;
    std::error_code error;
    fs::directory_iterator it(folder, error), end;
    for (; !error && it != end && entries.size() < kMostFiles; it.increment(error)) {
        entries.push_back(it->path());
    }
    std::ranges::sort(entries);
    return entries;
}

// "models--OWNER--NAME" -> OWNER/NAME.
Result<RepoSpec> RepoOfFolder(const std::string& name) {
    const size_t begin = kRepoPrefix.size(), dashes = name.find("--", begin);
    if (dashes == name.npos) return MakeError(ErrorCode::kUnsupported, "{}: no owner", name);
    return ParseSpec(name.substr(begin, dashes - begin) + "/" + name.substr(dashes + 2));
}

// The revision for each commit that a ref points to; "main" is preferred.
std::map<std::string, std::string> Revisions(const std::string& folder) {
    std::map<std::string, std::string> revisions;
    const std::string refs = folder + "/refs";
    std::error_code error;
    fs::recursive_directory_iterator it(refs, error), end;
    for (; !error && it != end && revisions.size() < kMostFiles; it.increment(error)) {
        std::error_code gone;
        if (!it->is_regular_file(gone)) continue;
        auto commit = ReadTextFile(it->path().string(), 4096);
        if (!commit.ok()) continue;
        while (!commit->empty() && (commit->back() == '\n' || commit->back() == ' ')) {
            commit->pop_back();
        }
        const std::string revision = it->path().string().substr(refs.size() + 1);
        std::string& known = revisions[*commit];
        if (known.empty() || revision == "main") known = revision;
    }
    return revisions;
}

void NoteTimes(const std::string& path, CachedModel& model) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return;
    model.modified_s = std::max<int64_t>(model.modified_s, info.st_mtime);
    model.used_s = std::max<int64_t>({model.used_s, info.st_atime, info.st_mtime});
}

// An unfinished file: counts the bytes present, and the final size if a note has it.
void CountPart(const std::string& path, CachedModel& model) {
    const auto note = ReadTextFile(path + kNoteSuffix, kMostNoteBytes);
    const auto parsed = note.ok() ? ParseNote(*note) : Result<PartNote>(note.error());
    std::error_code error;
    const uint64_t size = fs::file_size(path, error);
    model.files.push_back(path);
    model.bytes += parsed.ok() ? parsed->size : error ? 0 : size;
    model.held_bytes += parsed.ok() ? parsed->done.bytes() : error ? 0 : size;
    NoteTimes(path, model);
}

void CountFile(const std::string& path, uint64_t bytes, CachedModel& model) {
    const auto held = HeldRanges(path);
    const bool is_part = held.ok() && held->has_value();
    model.files.push_back(path);
    model.bytes += bytes;
    model.held_bytes += is_part ? (*held)->bytes() : bytes;
    if (is_part || !held.ok()) model.state = HeldState::kShard;
    NoteTimes(path, model);
}

// Adds the shards listed in a folder's index; false: one is missing.
bool TakeShards(const std::string& snapshot, const std::vector<RepoFile>& files,
                const RepoSpec& spec, Choice& choice) {
    if (choice.index.empty()) return true;
    const auto index = ReadTextFile(snapshot + "/" + choice.index, kMostIndex);
    if (!index.ok()) return false;
    if (AddShards(choice, files, *index, spec).ok()) return true;
    // The files that exist.
    for (const RepoFile& file : files) {
        const bool known =
            std::ranges::find(choice.files, file.path, &RepoFile::path) != choice.files.end();
        const bool weights = file.path.ends_with(".safetensors") || file.path.ends_with(".bin");
        if (!known && weights) choice.files.push_back(file);
    }
    return false;
}

// Finds the models of one repository. `base` is its folder, or its ShardFolder.
class RepoWalk {
  public:
    RepoWalk(const std::string& folder, const RepoSpec& spec, std::vector<CachedModel>& models,
             std::vector<std::string>* unread)
        : folder_(folder), spec_(spec), models_(models), unread_(unread) {}

    void Run() {
        const size_t first = models_.size();
        NoteUnread(folder_, unread_);
        NoteUnread(folder_ + "/blobs", unread_);
        Walk(folder_);
        Walk(ShardFolder(folder_));
        CachedModel unfinished;
        for (const fs::path& blob : EntriesOf(folder_ + "/blobs")) {
            // (A shard is an unfinished file with a link to it.)
            const std::string path = blob.string();
            if (path.ends_with(".incomplete") && !linked_.contains(path)) {
                CountPart(path, unfinished);
            }
        }
        if (unfinished.files.empty()) return;
        const auto partial = std::find_if(
            models_.begin() + static_cast<std::ptrdiff_t>(first), models_.end(),
            [](const CachedModel& model) { return model.state == HeldState::kPartial; });
        if (partial == models_.end()) {
            unfinished.spec = spec_;
            unfinished.path = folder_;
            unfinished.state = HeldState::kUnfetched;
            models_.push_back(std::move(unfinished));
            return;
        }
        partial->bytes += unfinished.bytes;
        partial->held_bytes += unfinished.held_bytes;
        partial->files.insert(partial->files.end(), unfinished.files.begin(),
                              unfinished.files.end());
    }

  private:
    void Walk(const std::string& base) {
        NoteUnread(base + "/refs", unread_);
        NoteUnread(base + "/snapshots", unread_);
        const auto revisions = Revisions(base);
        for (const fs::path& snapshot : EntriesOf(base + "/snapshots")) {
            const std::string commit = snapshot.filename().string();
            if (!IsCommit(commit)) continue;
            const auto found = revisions.find(commit);
            WalkSnapshot(snapshot.string(), commit,
                         found == revisions.end() ? commit : found->second);
        }
    }

    void WalkSnapshot(const std::string& snapshot, const std::string& commit,
                      const std::string& revision) {
        const std::vector<RepoFile> files = FilesIn(snapshot, unread_);
        for (Offer& offer : OffersAmong(files)) {
            CachedModel model;
            model.spec = spec_;
            model.spec.revision = revision;
            model.spec.what = offer.what;
            model.commit = commit;
            const bool whole = TakeShards(snapshot, files, model.spec, offer.choice) && offer.whole;
            if (!whole) model.state = HeldState::kPartial;
            for (const RepoFile& file : offer.choice.files) {
                const std::string path = snapshot + "/" + file.path;
                CountFile(path, file.bytes, model);
                std::error_code error;
                const fs::path target = fs::weakly_canonical(path, error);
                if (!error) linked_.insert(folder_ + "/blobs/" + target.filename().string());
            }
            model.path =
                offer.choice.model.empty() ? snapshot : snapshot + "/" + offer.choice.model;
            models_.push_back(std::move(model));
        }
    }

    const std::string folder_;
    const RepoSpec& spec_;
    std::vector<CachedModel>& models_;
    std::vector<std::string>* unread_;  // may be null
    std::set<std::string> linked_;      // contents
};

bool Matches(const CachedModel& model, const RepoSpec& asked) {
    if (model.spec.Repo() != asked.Repo()) return false;
    if (model.spec.revision != asked.revision && model.commit != asked.revision) return false;
    if (asked.what.empty()) return true;
    if (LowerCase(model.spec.what) == LowerCase(asked.what)) return true;
    return model.path.ends_with("/" + asked.what) ||
           (!model.spec.what.empty() && HasTag(model.spec.what, asked.what));
}

}  // namespace

const char* HeldStateName(HeldState state) {
    switch (state) {
        case HeldState::kWhole: return "whole";
        case HeldState::kShard: return "shard";
        case HeldState::kPartial:
        case HeldState::kUnfetched: return "incomplete";
    }
    WEFT_CHECK(false);
}

Result<std::vector<CachedModel>> ListCached(const Config& config,
                                            std::vector<std::string>* unread) {
    std::vector<CachedModel> models;
    std::error_code error;
    fs::directory_iterator it(config.cache, error);
    if (error == std::errc::no_such_file_or_directory) return models;
    if (error) {
        return MakeError(ErrorCode::kIo, "{}: cannot list the cache folder: {}", config.cache,
                         error.message());
    }
    for (const fs::path& entry : EntriesOf(config.cache)) {
        const std::string name = entry.filename().string();
        if (!name.starts_with(kRepoPrefix)) continue;
        const auto spec = RepoOfFolder(name);
        if (spec.ok()) RepoWalk(entry.string(), *spec, models, unread).Run();
    }
    return models;
}

Result<std::vector<CachedModel>> MatchCached(const std::vector<CachedModel>& models,
                                             const std::string& word) {
    std::vector<CachedModel> matching;
    for (const CachedModel& model : models) {
        if (model.path == word && !word.empty()) matching.push_back(model);
    }
    if (!matching.empty()) return matching;
    const auto asked = ParseSpec(ExpandShortName(word));
    if (!asked.ok()) {
        return MakeError(asked.error().code, "{}.{}", asked.error().message, ShortNameHint(word));
    }
    for (const CachedModel& model : models) {
        if (Matches(model, *asked)) matching.push_back(model);
    }
    if (!matching.empty()) return matching;
    return MakeError(ErrorCode::kNotFound,
                     "{}: not in the cache folder. 'weft list' shows its models", asked->Text());
}

}  // namespace weft::hub
