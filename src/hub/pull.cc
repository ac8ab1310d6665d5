#include "hub/pull.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/deadline.h"
#include "base/file.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "hub/download.h"
#include "hub/http.h"

namespace weft::hub {
namespace {

constexpr int kMostPages = 1000;
constexpr uint64_t kMostIndexBytes = 64 << 20;

Result<std::string> FindCommit(Connection& connection, const Config& config, const RepoSpec& spec) {
    if (IsCommit(spec.revision)) return spec.revision;
    const std::string url = fmt::format("{}/api/models/{}/revision/{}", config.endpoint,
                                        spec.Repo(), UrlText(spec.revision, false));
    WEFT_ASSIGN(const Page page, GetPage(connection, config, url, kMostPageBytes));
    return ParseCommit(page.text, url);
}

Result<std::vector<RepoFile>> ListFiles(Connection& connection, const Config& config,
                                        const RepoSpec& spec, const std::string& commit) {
    std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", config.endpoint,
                                  spec.Repo(), commit);
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
                             "{}: refused: the listing goes on at another host, {}", spec.Text(),
                             Shown(next));
        }
        url = std::move(next);
    }
    return files;
}

// One pull: what its steps share.
class Puller {
  public:
    Puller(const Config& config, const RepoSpec& spec, const OnPull& on_state)
        : config_(config),
          spec_(spec),
          on_state_(on_state),
          folder_(RepoFolder(config, spec)),
          connection_(config) {}

    Result<Pulled> Run() {
        const int64_t begin_ns = NowNs();
        WEFT_ASSIGN(pulled_.commit, FindCommit(connection_, config_, spec_));
        WEFT_ASSIGN(const auto listing, ListFiles(connection_, config_, spec_, pulled_.commit));
        WEFT_ASSIGN(Choice choice, Choose(listing, spec_));
        WEFT_TRY(MakeFolder(folder_ + "/blobs"));
        TagCache(config_);
        if (!choice.index.empty()) WEFT_TRY(ReadIndex(choice, listing));
        WEFT_TRY(CountBytes(choice));
        for (const RepoFile& file : choice.files) {
            ++state_.file_number;
            WEFT_TRY(Bring(file));
        }
        WEFT_TRY(WriteRef(folder_, spec_, pulled_.commit));
        pulled_.path = SnapshotPath(folder_, pulled_.commit);
        if (!choice.model.empty()) pulled_.path += "/" + choice.model;
        pulled_.seconds = static_cast<double>(NowNs() - begin_ns) * 1e-9;
        return std::move(pulled_);
    }

  private:
    // The index comes first: it says what else there is to come.
    Status ReadIndex(Choice& choice, const std::vector<RepoFile>& listing) {
        const auto index = std::ranges::find(choice.files, choice.index, &RepoFile::path);
        WEFT_CHECK(index != choice.files.end());
        const RepoFile file = *index;
        if (file.bytes > kMostIndexBytes) {
            return MakeError(ErrorCode::kUnsupported, "{}: {} has {} bytes, more than {}",
                             spec_.Text(), file.path, file.bytes, kMostIndexBytes);
        }
        choice.files.erase(index);
        state_.file_count = 1;
        state_.file_number = 1;
        WEFT_TRY(Bring(file));
        pulled_.total_bytes += file.bytes;
        WEFT_ASSIGN(const std::string text, ReadTextFile(BlobPath(folder_, file), kMostIndexBytes));
        return AddShards(choice, listing, text, spec_);
    }

    Status CountBytes(const Choice& choice) {
        uint64_t needed = 0;
        for (const RepoFile& file : choice.files) {
            pulled_.total_bytes += file.bytes;
            struct stat part {};
            if (HasBlob(folder_, file)) continue;
            const bool begun = ::stat(PartPath(folder_, file).c_str(), &part) == 0;
            const uint64_t there = begun ? static_cast<uint64_t>(part.st_blocks) * 512 : 0;
            needed += file.bytes - std::min(file.bytes, there);
        }
        state_.total_bytes = pulled_.total_bytes;
        state_.file_count += choice.files.size();
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

    Status Bring(const RepoFile& file) {
        PulledFile pulled;
        pulled.file = file;
        pulled.cached = HasBlob(folder_, file);
        if (!pulled.cached) {
            WEFT_ASSIGN(const BlobLock lock, BlobLock::Take(config_, spec_, file, [&] {
                            state_.waiting = true;
                            Show(file, 0, 0);
                            state_.waiting = false;
                        }));
            pulled.cached = HasBlob(folder_, file);  // by whom we waited for
            if (!pulled.cached) WEFT_TRY(Fetch(file, pulled));
        }
        WEFT_TRY(LinkBlob(folder_, pulled_.commit, file));
        state_.there_bytes += file.bytes;
        state_.fetched_bytes += pulled.fetched_bytes;
        pulled_.fetched_bytes += pulled.fetched_bytes;
        pulled_.files.push_back(std::move(pulled));
        return {};
    }

    Status Fetch(const RepoFile& file, PulledFile& pulled) {
        const std::string url = fmt::format("{}/{}/resolve/{}/{}", config_.endpoint, spec_.Repo(),
                                            pulled_.commit, UrlText(file.path, true));
        const std::string part = PartPath(folder_, file), blob = BlobPath(folder_, file);
        WEFT_ASSIGN(const Downloaded downloaded,
                    Download(config_, url, file, part, [&](uint64_t there, uint64_t fetched) {
                        Show(file, there, fetched);
                    }));
        if (::rename(part.c_str(), blob.c_str()) != 0) {
            return MakeError(ErrorCode::kIo, "{}: cannot rename to {}: {}", part, blob,
                             std::strerror(errno));
        }
        pulled.fetched_bytes = downloaded.fetched_bytes;
        pulled.resumed_bytes = downloaded.resumed_bytes;
        return {};
    }

    const Config& config_;
    const RepoSpec& spec_;
    const OnPull& on_state_;
    const std::string folder_;
    Connection connection_;
    Pulled pulled_;
    PullState state_;
};

}  // namespace

Result<Pulled> Pull(const Config& config, const RepoSpec& spec, const OnPull& on_state) {
    auto pulled = Puller(config, spec, on_state).Run();
    if (pulled.ok() || pulled.error().code != ErrorCode::kCancelled) return pulled;
    return MakeError(ErrorCode::kCancelled,
                     "{}: stopped. What came is kept; the same command goes on from it",
                     spec.Text());
}

}  // namespace weft::hub
