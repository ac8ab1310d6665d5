// Removes a model from the cache folder (inventory.h).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "base/file.h"
#include "hub/cache.h"
#include "hub/choose.h"
#include "hub/inventory.h"
#include "hub/part.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

// Whether `path` is inside `folder`; links in both must be resolved.
bool LiesIn(const fs::path& path, const fs::path& folder) {
    const fs::path rest = path.lexically_relative(folder);
    return !rest.empty() && *rest.begin() != ".." && rest != ".";
}

class Removal {
  public:
    Removal(const Config& config, const CachedModel& model)
        : model_(model),
          folder_(RepoFolder(config, model.spec)),
          locks_(config.cache + "/.locks/" + fs::path(folder_).filename().string()),
          cache_(config.cache) {}
    ~Removal() {
        for (const int fd : held_locks_) ::close(fd);
    }
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;

    Result<Removed> Run() {
        WEFT_TRY(CheckPlace());
        std::vector<fs::path> links(model_.files.begin(), model_.files.end());
        const fs::path snapshot = SnapshotOf();
        if (!snapshot.empty()) AddRest(snapshot, links);
        std::set<fs::path> contents;
        for (const fs::path& link : links) {
            const fs::path content = ContentOf(link);
            if (!content.empty()) contents.insert(content);
        }
        for (const fs::path& content : contents) WEFT_TRY(Lock(content));
        for (const fs::path& link : links) WEFT_TRY(RemoveLink(link));
        if (!snapshot.empty()) WEFT_TRY(RemoveEmpty(snapshot));
        WEFT_ASSIGN(const std::set<fs::path> needed, Needed());
        for (const fs::path& content : contents) WEFT_TRY(RemoveContent(content, needed));
        RemoveEmptyRepo();
        return removed_;
    }

  private:
    // Refuses a repository outside the cache folder.
    Status CheckPlace() {
        std::error_code error;
        const fs::path cache = fs::canonical(cache_, error);
        const fs::path real = error ? fs::path() : fs::canonical(folder_, error);
        if (!error && LiesIn(real, cache)) {
            real_ = real;
            return {};
        }
        return MakeError(ErrorCode::kDenied, "{}: {}. Nothing was removed", folder_,
                         error ? error.message() : "points outside the cache folder");
    }

    fs::path SnapshotOf() const {
        if (model_.commit.empty()) return {};
        const fs::path shard = SnapshotPath(ShardFolder(folder_), model_.commit);
        const bool is_shard = model_.path.starts_with(ShardFolder(folder_) + "/");
        return is_shard ? shard : fs::path(SnapshotPath(folder_, model_.commit));
    }

    // With the last model of a snapshot, all other files are removed: settings, licenses, images.
    static void AddRest(const fs::path& snapshot, std::vector<fs::path>& links) {
        std::vector<RepoFile> rest;
        for (const RepoFile& file : FilesIn(snapshot.string())) {
            if (std::ranges::find(links, snapshot / file.path) == links.end()) rest.push_back(file);
        }
        if (!OffersAmong(rest).empty()) return;
        std::error_code error;
        fs::recursive_directory_iterator it(snapshot, error), end;
        for (; !error && it != end; it.increment(error)) {
            std::error_code gone;
            const bool folder = it->is_directory(gone) && !it->is_symlink(gone);
            if (folder || std::ranges::find(links, it->path()) != links.end()) continue;
            links.push_back(it->path());
        }
    }

    // The file in blobs/ that a link points to, or that it is; empty: it points elsewhere.
    fs::path ContentOf(const fs::path& link) const {
        std::error_code error;
        const fs::path real = fs::weakly_canonical(link, error);
        return !error && real.parent_path() == real_ / "blobs" ? real : fs::path();
    }

    // Held until the end, so that no program downloads the content meanwhile.
    Status Lock(const fs::path& content) {
        std::string hash = content.filename().string();
        for (const std::string suffix : {kPartSuffix, ".incomplete"}) {
            if (hash.ends_with(suffix)) hash.resize(hash.size() - suffix.size());
        }
        // (Created if missing, so that a program that starts a download waits for it.)
        WEFT_TRY(MakeFolder(locks_));
        const std::string path = locks_ + "/" + hash + ".lock";
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (fd < 0) {
            return MakeError(ErrorCode::kIo, "{}: cannot open this lock: {}. Nothing was removed",
                             path, std::strerror(errno));
        }
        held_locks_.push_back(fd);
        if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
        return MakeError(ErrorCode::kDenied,
                         "{}: another program is downloading it ('fuser {}' lists it). Nothing was "
                         "removed",
                         model_.spec.Text(), path);
    }

    // Removes a link, or the file itself in a cache without links.
    Status RemoveLink(const fs::path& link) {
        std::error_code error;
        const fs::path parent = fs::canonical(link.parent_path(), error);
        if (error || !LiesIn(parent, real_)) return {};  // the link's folder is outside the cache
        if (parent == real_ / "blobs") return {};        // a content, not a link
        struct stat info {};
        if (::lstat(link.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
            removed_.freed_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
        }
        return Unlink(link);
    }

    static Status Unlink(const fs::path& path) {
        if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
        return MakeError(ErrorCode::kIo, "{}: cannot remove: {}", path.string(),
                         std::strerror(errno));
    }

    // Removes empty folders of the snapshot, the snapshot, and refs to it.
    Status RemoveEmpty(const fs::path& snapshot) {
        std::vector<fs::path> folders = {snapshot};
        std::error_code error;
        fs::recursive_directory_iterator it(snapshot, error), end;
        for (; !error && it != end; it.increment(error)) {
            std::error_code gone;
            if (it->is_directory(gone) && !it->is_symlink(gone)) folders.push_back(it->path());
        }
        for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
            ::rmdir(folder->c_str());
        }
        if (fs::exists(snapshot, error)) return {};
        const fs::path refs = snapshot.parent_path().parent_path() / "refs";
        fs::recursive_directory_iterator ref(refs, error);
        std::vector<fs::path> stale;
        for (; !error && ref != end; ref.increment(error)) {
            std::error_code gone;
            if (!ref->is_regular_file(gone)) continue;
            const auto commit = ReadTextFile(ref->path().string(), 4096);
            if (commit.ok() && commit->starts_with(model_.commit)) stale.push_back(ref->path());
        }
        for (const fs::path& path : stale) WEFT_TRY(Unlink(path));
        return {};
    }

    // The contents that remaining links point to. Errors: kIo if some links can't be read; no
    // content may then be removed.
    Result<std::set<fs::path>> Needed() const {
        std::set<fs::path> needed;
        for (const std::string& base : {folder_, ShardFolder(folder_)}) {
            std::error_code error;
            fs::recursive_directory_iterator it(base + "/snapshots", error), end;
            for (; !error && it != end; it.increment(error)) {
                const fs::path content = ContentOf(it->path());
                if (!content.empty()) needed.insert(content);
            }
            if (!error || error == std::errc::no_such_file_or_directory) continue;
            return MakeError(
                ErrorCode::kIo,
                "{}/snapshots: cannot read it: {}. Nothing was deleted, because another "
                "snapshot may use the data",
                base, error.message());
        }
        return needed;
    }

    Status RemoveContent(const fs::path& content, const std::set<fs::path>& needed) {
        struct stat info {};
        if (::lstat(content.c_str(), &info) != 0) return {};
        const uint64_t bytes = static_cast<uint64_t>(info.st_blocks) * 512;
        if (needed.contains(content)) {
            removed_.kept_bytes += bytes;
            return {};
        }
        WEFT_TRY(Unlink(content));
        removed_.freed_bytes += bytes;
        const bool is_part = content.string().ends_with(kPartSuffix);
        return is_part ? Unlink(content.string() + kNoteSuffix) : Status();
    }

    // Removes a repository that holds only empty folders and refs.
    void RemoveEmptyRepo() const {
        std::error_code error;
        for (const std::string& base : {folder_, ShardFolder(folder_)}) {
            if (!fs::is_empty(base + "/snapshots", error) && !error) return;
        }
        const bool has_contents = !fs::is_empty(folder_ + "/blobs", error) && !error;
        if (has_contents) return;
        fs::remove_all(real_, error);
        // (Locks outside the cache folder stay.)
        const fs::path cache = fs::canonical(cache_, error);
        const fs::path locks = error ? fs::path() : fs::canonical(locks_, error);
        if (!error && LiesIn(locks, cache)) fs::remove_all(locks, error);
    }

    const CachedModel& model_;
    const std::string folder_, locks_, cache_;
    fs::path real_;  // the repository's folder
    std::vector<int> held_locks_;
    Removed removed_;
};

}  // namespace

Result<Removed> RemoveCached(const Config& config, const CachedModel& model) {
    return Removal(config, model).Run();
}

}  // namespace weft::hub
