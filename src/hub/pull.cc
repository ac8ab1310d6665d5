#include "hub/pull.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "hub/choose_data.h"
#include "hub/download.h"
#include "hub/http.h"

namespace weft::hub {
namespace {

constexpr int kMostPages = 1000;
constexpr uint64_t kMostShardIndexBytes = 64 << 20;
// Limits the rounds of a shard's plan. Only a guard: each round requests missing bytes.
constexpr int kMostRounds = 32;

std::string_view KindOf(const RepoSpec& spec) {
    return spec.is_dataset ? "datasets" : "models";
}

// info: receives the response; empty for the name of a commit of a model.
Result<std::string> FindCommit(Connection& connection, const Config& config, const RepoSpec& spec,
                               std::string& info) {
    if (IsCommit(spec.revision) && !spec.is_dataset) return spec.revision;
    const std::string url = fmt::format("{}/api/{}/{}/revision/{}", config.endpoint, KindOf(spec),
                                        spec.Repo(), UrlText(spec.revision, false));
    WEFT_ASSIGN(Page page, GetPage(connection, config, url, kMostPageBytes));
    info = std::move(page.text);
    return ParseCommit(info, url);
}

Result<std::vector<RepoFile>> ListFiles(Connection& connection, const Config& config,
                                        const RepoSpec& spec, const std::string& commit) {
    std::string url = fmt::format("{}/api/{}/{}/tree/{}?recursive=true", config.endpoint,
                                  KindOf(spec), spec.Repo(), commit);
    std::vector<RepoFile> files;
    for (int pages = 1; !url.empty(); ++pages) {
        if (pages > kMostPages) {
            return MakeError(ErrorCode::kUnsupported, "{}: a listing of more than {} pages",
                             spec.Text(), kMostPages);
        }
        WEFT_ASSIGN(const Page page, GetPage(connection, config, url, kMostPageBytes));
        WEFT_TRY(ParseTreePage(page.text, url.substr(0, url.find('?')), files));
        std::string next = NextPage(page.response.link);
        if (next.starts_with("/")) next = config.endpoint + next;
        if (!next.empty() && !SameOrigin(next, config.endpoint)) {
            return MakeError(ErrorCode::kDenied,
                             "{}: refused: the listing continues on another host, {}", spec.Text(),
                             Shown(next));
        }
        url = std::move(next);
    }
    return files;
}

bool IsWeights(const std::string& path) {
    return path.ends_with(".safetensors") || path.ends_with(".bin") || path.ends_with(".gguf") ||
           path.ends_with(".GGUF");
}

// The state of one pull.
class Puller {
  public:
    // plan: for a shard; null: the whole model.
    Puller(const Config& config, const RepoSpec& spec, const PlanShard* plan,
           const OnPull& on_state)
        : config_(config),
          spec_(spec),
          plan_(plan),
          on_state_(on_state),
          folder_(RepoFolder(config, spec)),
          place_(plan == nullptr ? folder_ : ShardFolder(folder_)),
          connection_(config) {}

    Result<Pulled> Run() {
        const int64_t begin_ns = NowNs();
        std::string info;
        WEFT_ASSIGN(pulled_.commit, FindCommit(connection_, config_, spec_, info));
        WEFT_ASSIGN(const auto listing, ListFiles(connection_, config_, spec_, pulled_.commit));
        Choice choice;
        if (spec_.is_dataset) {
            WEFT_ASSIGN(choice.files, ChooseData(listing, spec_, info));
        } else {
            WEFT_ASSIGN(choice, Choose(listing, spec_));
        }
        WEFT_TRY(MakeFolder(folder_ + "/blobs"));
        TagCache(config_);
        if (!choice.index.empty()) WEFT_TRY(ReadIndex(choice, listing));
        const std::string snapshot = SnapshotPath(place_, pulled_.commit);
        pulled_.path = choice.model.empty() ? snapshot : snapshot + "/" + choice.model;
        WEFT_TRY(plan_ == nullptr ? BringAll(choice.files) : BringShard(choice.files));
        if (spec_.is_dataset) {
            WEFT_TRY(WriteDataFiles(config_, spec_, pulled_.commit, choice.files));
        }
        WEFT_TRY(WriteRef(place_, spec_, pulled_.commit));
        pulled_.seconds = SecondsSince(begin_ns);
        return std::move(pulled_);
    }

  private:
    Status BringAll(const std::vector<RepoFile>& files) {
        WEFT_TRY(CountBytes(files));
        // Weights come last: a snapshot with all weights has everything (FindCached).
        for (const bool weights : {false, true}) {
            for (const RepoFile& file : files) {
                if (IsWeights(file.path) != weights) continue;
                ++state_.file_number;
                WEFT_TRY(Bring(file));
            }
        }
        return {};
    }

    // First downloads files other than weights, and the heads of weight files; then the plan's
    // ranges.
    Status BringShard(const std::vector<RepoFile>& files) {
        std::vector<RepoFile> others, weights;
        for (const RepoFile& file : files) {
            // (A zip has its directory at the end: pytorch_model.bin is brought whole.)
            const bool divided = IsWeights(file.path) && !file.path.ends_with(".bin");
            (divided ? weights : others).push_back(file);
        }
        WEFT_TRY(BringAll(others));
        std::map<std::string, PulledFile> parts;
        ShardRanges ranges;
        for (const RepoFile& file : weights) {
            parts[file.path].file = file;
            ranges.files[file.path].Add({0, std::min(file.bytes, kShardHeadBytes)});
        }
        for (int round = 0; round < kMostRounds; ++round) {
            WEFT_TRY(CountRanges(ranges, parts));
            for (auto& [path, wanted] : ranges.files) {
                ++state_.file_number;
                WEFT_TRY(BringRanges(wanted, parts[path]));
            }
            if (ranges.is_all) break;
            WEFT_ASSIGN(ShardRanges next, (*plan_)(pulled_.path));
            ranges.files.clear();
            for (auto& [path, wanted] : next.files) {
                const std::string prefix = SnapshotPath(place_, pulled_.commit) + "/";
                WEFT_CHECK(path.starts_with(prefix));
                ranges.files[path.substr(prefix.size())] = std::move(wanted);
            }
            ranges.is_all = next.is_all;
        }
        if (!ranges.is_all) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: the ranges of this shard are still not known after {} rounds. "
                             "Pull the model without --shard",
                             spec_.Text(), kMostRounds);
        }
        for (auto& [path, part] : parts) {
            if (!part.is_partial) part.shard_bytes = part.file.bytes;
            pulled_.total_bytes += part.shard_bytes;
            pulled_.files.push_back(std::move(part));
        }
        return {};
    }

    // Computes this round's bytes, for the progress line, and checks the disk space.
    Status CountRanges(const ShardRanges& ranges, const std::map<std::string, PulledFile>& parts) {
        uint64_t needed = 0;
        state_.file_number = 0;
        state_.file_count = ranges.files.size();
        state_.there_bytes = state_.total_bytes = 0;
        for (const auto& [path, wanted] : ranges.files) {
            const auto part = parts.find(path);
            WEFT_CHECK(part != parts.end());
            const RepoFile& file = part->second.file;
            state_.total_bytes += wanted.bytes();
            if (HasBlob(folder_, file)) continue;
            const auto held = HeldRanges(PartPath(folder_, file));
            const RangeSet none;
            const RangeSet& there = held.ok() && *held ? **held : none;
            for (const ByteRange& range : wanted.ranges()) {
                for (const ByteRange& gap : there.MissingOf(range)) needed += gap.end - gap.begin;
            }
        }
        return CheckSpace(folder_, needed);
    }

    Status BringRanges(const RangeSet& wanted, PulledFile& pulled) {
        const RepoFile& file = pulled.file;
        // A file that starts over needs the ranges of earlier rounds again.
        RangeSet& all = asked_[file.path];
        for (const ByteRange& range : wanted.ranges()) all.Add(range);
        bool is_whole = HasBlob(folder_, file);
        std::optional<BlobLock> held;  // until the link exists: 'weft rm' looks for links
        if (!is_whole || !IsLinked(file)) {
            WEFT_ASSIGN(BlobLock lock, Lock(file));
            held.emplace(std::move(lock));
            is_whole = HasBlob(folder_, file);
            if (!is_whole) {
                WEFT_TRY(Fetch(file, pulled, &all));
                is_whole = HasBlob(folder_, file);
                if (!is_whole) WEFT_TRY(CheckHeld(file, all));
            }
        }
        WEFT_TRY(LinkBlob(place_, pulled_.commit, file,
                          is_whole ? BlobPath(folder_, file) : PartPath(folder_, file), false));
        pulled.cached = is_whole && pulled.fetched_bytes == 0;
        pulled.is_partial = !is_whole;
        pulled.shard_bytes = wanted.bytes();
        state_.there_bytes += wanted.bytes();
        return {};
    }

    Status CheckHeld(const RepoFile& file, const RangeSet& wanted) const {
        WEFT_ASSIGN(const auto held, HeldRanges(PartPath(folder_, file)));
        for (const ByteRange& range : wanted.ranges()) {
            if (held.has_value() && held->Contains(range)) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "{}: the download ended without bytes {} to {}. Pull it again",
                             file.path, range.begin, range.end - 1);
        }
        return {};
    }

    Result<BlobLock> Lock(const RepoFile& file) {
        return BlobLock::Take(config_, spec_, file, [&] {
            state_.waiting = true;
            Show(file, 0, 0);
            state_.waiting = false;
        });
    }

    // Downloads the index first, since it lists the other files.
    Status ReadIndex(Choice& choice, const std::vector<RepoFile>& listing) {
        const auto index = std::ranges::find(choice.files, choice.index, &RepoFile::path);
        WEFT_CHECK(index != choice.files.end());
        const RepoFile file = *index;
        if (file.bytes > kMostShardIndexBytes) {
            return MakeError(ErrorCode::kUnsupported, "{}: {} has {} bytes, more than {}",
                             spec_.Text(), file.path, file.bytes, kMostShardIndexBytes);
        }
        choice.files.erase(index);
        state_.file_count = 1;
        state_.file_number = 1;
        WEFT_TRY(Bring(file));
        pulled_.total_bytes += file.bytes;
        WEFT_ASSIGN(const std::string text,
                    ReadTextFile(SnapshotPath(place_, pulled_.commit) + "/" + file.path,
                                 kMostShardIndexBytes));
        return AddShards(choice, listing, text, spec_);
    }

    Status CountBytes(const std::vector<RepoFile>& files) {
        uint64_t needed = 0;
        for (const RepoFile& file : files) {
            pulled_.total_bytes += file.bytes;
            struct stat part {};
            if (IsThere(file)) continue;
            const bool begun = ::stat(PartPath(folder_, file).c_str(), &part) == 0;
            const uint64_t there = begun ? static_cast<uint64_t>(part.st_blocks) * 512 : 0;
            needed += file.bytes - std::min(file.bytes, there);
        }
        state_.total_bytes = pulled_.total_bytes;
        state_.file_count += files.size();
        return CheckSpace(folder_, needed);
    }

    void Show(const RepoFile& file, uint64_t there, uint64_t fetched) {
        if (!on_state_) return;
        PullState state = state_;
        state.file = &file;
        state.there_bytes += there;
        state.fetched_bytes += fetched;
        on_state_(state);
    }

    bool IsThere(const RepoFile& file) const {
        return HasBlob(folder_, file) || HasCopy(place_, pulled_.commit, file);
    }

    // Whether the snapshot has the file, of any content.
    bool IsLinked(const RepoFile& file) const {
        std::error_code error;
        const std::string path = SnapshotPath(place_, pulled_.commit) + "/" + file.path;
        return std::filesystem::file_size(path, error) == file.bytes && !error;
    }

    Status Bring(const RepoFile& file) {
        PulledFile pulled;
        pulled.file = file;
        pulled.cached = IsThere(file);
        std::optional<BlobLock> held;  // until the link exists, as in BringRanges
        if (!pulled.cached || !IsLinked(file)) {
            WEFT_ASSIGN(BlobLock lock, Lock(file));
            held.emplace(std::move(lock));
            pulled.cached = IsThere(file);  // downloaded by the program that we waited for
            if (!pulled.cached) WEFT_TRY(Fetch(file, pulled, nullptr));
        }
        if (!HasCopy(place_, pulled_.commit, file)) {
            WEFT_TRY(
                LinkBlob(place_, pulled_.commit, file, BlobPath(folder_, file), !pulled.cached));
        }
        state_.there_bytes += file.bytes;
        pulled.shard_bytes = file.bytes;
        pulled_.files.push_back(std::move(pulled));
        return {};
    }

    // The file's lock must be held. wanted: ranges of it; null: all.
    Status Fetch(const RepoFile& file, PulledFile& pulled, const RangeSet* wanted) {
        const std::string url = fmt::format("{}/{}{}/resolve/{}/{}", config_.endpoint,
                                            spec_.is_dataset ? "datasets/" : "", spec_.Repo(),
                                            pulled_.commit, UrlText(file.path, true));
        WEFT_ASSIGN(const Downloaded downloaded,
                    Download(
                        config_, url, file, PartPath(folder_, file),
                        [&](uint64_t there, uint64_t fetched) {
                            Show(file, wanted == nullptr ? there : fetched, fetched);
                        },
                        wanted));
        if (downloaded.is_whole) WEFT_TRY(CompletePart(folder_, file));
        if (pulled.fetched_bytes == 0) pulled.resumed_bytes = downloaded.resumed_bytes;
        pulled.fetched_bytes += downloaded.fetched_bytes;
        pulled_.fetched_bytes += downloaded.fetched_bytes;
        state_.fetched_bytes += downloaded.fetched_bytes;
        return {};
    }

    const Config& config_;
    const RepoSpec& spec_;
    const PlanShard* plan_;
    const OnPull& on_state_;
    const std::string folder_, place_;
    Connection connection_;
    Pulled pulled_;
    PullState state_;
    std::map<std::string, RangeSet> asked_;  // of a shard, by path
};

// The folder of a split whose files are in the cache.
Result<std::string> FindCachedSplit(const Config& config, const RepoSpec& spec) {
    WEFT_ASSIGN(const std::vector<std::string> files, FindCachedData(config, spec));
    const size_t commit = RepoFolder(config, spec).size() + std::string_view("/snapshots/").size();
    return files.front().substr(0, files.front().find('/', commit));
}

// Returns the complete model in the cache folder, or an error that states that no network is used.
Result<Pulled> Offline(const Config& config, const RepoSpec& spec) {
    std::string older;
    auto found = spec.is_dataset ? FindCachedSplit(config, spec) : FindCached(config, spec, &older);
    if (!older.empty()) Log(LogLevel::kWarning, "{}", older);
    if (!found.ok() && found.error().code != ErrorCode::kNotFound) return found.error();
    const std::string whole = RepoFolder(config, spec) + "/snapshots/";
    if (!found.ok() || !found->starts_with(whole)) {
        return MakeError(ErrorCode::kDenied,
                         "{}: {} the cache folder {}, and HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE) "
                         "forbids a download. Unset the variable to download",
                         spec.Text(), found.ok() ? "only shards of it are in" : "it is not in",
                         config.cache);
    }
    Pulled pulled;
    pulled.path = *found;
    pulled.commit = found->substr(whole.size(), found->find('/', whole.size()) - whole.size());
    return pulled;
}

Result<Pulled> Run(const Config& config, const RepoSpec& spec, const PlanShard* plan,
                   const OnPull& on_state) {
    if (config.offline) return Offline(config, spec);
    auto pulled = Puller(config, spec, plan, on_state).Run();
    if (pulled.ok() || pulled.error().code != ErrorCode::kCancelled) return pulled;
    return MakeError(ErrorCode::kCancelled,
                     "{}: stopped. Downloaded data is kept; run the same command to continue",
                     spec.Text());
}

}  // namespace

Result<Pulled> Pull(const Config& config, const RepoSpec& spec, const OnPull& on_state) {
    return Run(config, spec, nullptr, on_state);
}

Result<Pulled> PullShard(const Config& config, const RepoSpec& spec, const PlanShard& plan,
                         const OnPull& on_state) {
    if (spec.is_dataset) {
        return MakeError(ErrorCode::kUsage, "{}: a data set has no shards", spec.Text());
    }
    return Run(config, spec, &plan, on_state);
}

}  // namespace weft::hub
