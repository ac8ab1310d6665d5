#include "hub/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output_file.h"
#include "hub/choose.h"
#include "hub/http.h"
#include "hub/part.h"

namespace weft::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLockPollMs = 50;
constexpr uint64_t kMostIndexBytes = 64 << 20;

Error PathError(const std::string& path, const char* what, int number) {
    return MakeError(ErrorCode::kIo, "{}: cannot {}: {}", path, what, std::strerror(number));
}

std::string Parent(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

std::string RepoName(const RepoSpec& spec) {
    return (spec.is_dataset ? "datasets--" : "models--") + spec.owner + "--" + spec.name;
}

// The progress of unfinished downloads of one content, Weft's and other programs': the disk space
// that they use, and the time of their latest change.
std::pair<uint64_t, int64_t> PartialState(const std::string& repo_folder, const RepoFile& file) {
    uint64_t bytes = 0;
    int64_t changed_ns = 0;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(repo_folder + "/blobs", error)) {
        const std::string name = entry.path().filename().string();
        struct stat info {};
        if (name.starts_with(file.hash) && ::stat(entry.path().c_str(), &info) == 0) {
            bytes += static_cast<uint64_t>(info.st_blocks) * 512;
            changed_ns = std::max<int64_t>(
                changed_ns, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec);
        }
    }
    return {bytes, changed_ns};
}

Error NotCached(const RepoSpec& spec, const std::string& why) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: {}. Run 'weft pull {}' on this machine, or use --pull", spec.Text(), why,
                     spec.Text());
}

Result<std::string> CommitOf(const std::string& folder, const RepoSpec& spec,
                             const Config& config) {
    if (IsCommit(spec.revision)) return spec.revision;
    auto text = ReadTextFile(folder + "/refs/" + spec.revision, 4096);
    if (!text.ok() && text.error().code != ErrorCode::kNotFound) return text.error();
    if (!text.ok()) return NotCached(spec, "not in the cache folder " + config.cache);
    while (!text->empty() && (text->back() == '\n' || text->back() == ' ')) text->pop_back();
    if (IsCommit(*text)) return *text;
    return MakeError(ErrorCode::kCorrupt, "{}/refs/{}: not a commit: '{}'", folder, spec.revision,
                     Shown(*text));
}

// The error if no file matches the spec; lists the existing files.
Error NotAmong(const std::vector<RepoFile>& files, const std::string& snapshot,
               const RepoSpec& spec) {
    std::string others;
    for (const Offer& offer : OffersAmong(files)) {
        const std::string& name = offer.what.empty() ? offer.choice.model : offer.what;
        const bool asked = spec.what.empty() || name == spec.what ||
                           HasTag(offer.choice.model, spec.what) || HasTag(name, spec.what);
        if (asked) return NotCached(spec, "incomplete in the cache folder " + snapshot);
        others += (others.empty() ? "" : ", ") +
                  (name.empty() ? "the folder (without ':" + spec.what + "')" : Shown(name, 160));
    }
    const char* found = others.empty() ? "" : "; there are: ";
    return NotCached(spec, "not in the cache folder " + snapshot + found + others);
}

// Snapshots other than `commit`'s that may belong to the revision, the newest first: no ref names
// them. A revision that is a commit has no others.
std::vector<std::string> OlderCommits(const std::string& folder, const RepoSpec& spec,
                                      const std::string& commit) {
    if (IsCommit(spec.revision)) return {};
    std::vector<std::string> named = {commit};
    std::error_code error;
    fs::recursive_directory_iterator ref(folder + "/refs", error), end;
    for (; !error && ref != end; ref.increment(error)) {
        const auto text = ReadTextFile(ref->path().string(), 4096);
        if (text.ok()) named.push_back(text->substr(0, commit.size()));
    }
    std::vector<std::pair<fs::file_time_type, std::string>> found;
    for (const auto& entry : fs::directory_iterator(folder + "/snapshots", error)) {
        const std::string name = entry.path().filename().string();
        if (!IsCommit(name) || std::ranges::count(named, name) > 0) continue;
        std::error_code gone;
        found.emplace_back(entry.last_write_time(gone), name);
    }
    std::ranges::sort(found, std::greater());
    std::vector<std::string> commits;
    for (const auto& [time, name] : found) commits.push_back(name);
    return commits;
}

std::string OlderText(const RepoSpec& spec, const std::string& used, const std::string& newest) {
    return fmt::format("{}: using commit {}, because the cache lacks this part of commit {} ({})",
                       spec.Text(), used, newest, spec.revision);
}

// folder: a repository's folder or its ShardFolder.
Result<std::string> FindIn(const std::string& folder, const std::string& commit,
                           const Config& config, const RepoSpec& spec) {
    const std::string snapshot = SnapshotPath(folder, commit);
    std::vector<std::string> unread;
    const std::vector<RepoFile> files = FilesIn(snapshot, &unread);
    if (!unread.empty()) return MakeError(ErrorCode::kIo, "{}", unread.front());
    if (files.empty()) return NotCached(spec, "not in the cache folder " + config.cache);
    auto choice = Choose(files, spec);
    if (!choice.ok()) {
        if (choice.error().code != ErrorCode::kNotFound) return choice.error();
        return NotAmong(files, snapshot, spec);
    }
    if (!choice->index.empty()) {
        WEFT_ASSIGN(const std::string index,
                    ReadTextFile(snapshot + "/" + choice->index, kMostIndexBytes));
        const Status whole = AddShards(*choice, files, index, spec);
        if (!whole.ok() && whole.error().code != ErrorCode::kNotFound) return whole.error();
        if (!whole.ok()) return NotCached(spec, "incomplete in the cache folder " + snapshot);
    }
    return choice->model.empty() ? snapshot : snapshot + "/" + choice->model;
}

Result<std::string> FindNewest(const std::string& folder, const Config& config,
                               const RepoSpec& spec) {
    WEFT_ASSIGN(const std::string commit, CommitOf(folder, spec, config));
    return FindIn(folder, commit, config, spec);
}

// Searches the snapshots of OlderCommits; "": none has the model.
std::string FindOlder(const std::string& folder, const Config& config, const RepoSpec& spec,
                      std::string* older) {
    const auto newest = CommitOf(folder, spec, config);
    if (!newest.ok()) return "";
    for (const std::string& commit : OlderCommits(folder, spec, *newest)) {
        auto found = FindIn(folder, commit, config, spec);
        if (!found.ok()) continue;
        if (older != nullptr) *older = OlderText(spec, commit, *newest);
        return *std::move(found);
    }
    return "";
}

Status Replace(const std::string& fresh, const std::string& path, const char* what) {
    if (::rename(fresh.c_str(), path.c_str()) == 0) return {};
    const Error error = PathError(path, what, errno);
    ::unlink(fresh.c_str());
    return error;
}

std::string DataListPath(const std::string& folder, const RepoSpec& spec,
                         const std::string& commit) {
    return folder + "/weft-data/" + commit + "/" + spec.what + "@" + spec.split;
}

// Whether the error means that the file system has no symbolic links: FAT, some network file
// systems, some FUSE ones.
bool LacksHardLinks(int error) {
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS;
}

// LinkBlob without links. fresh: an unused name in the folder of `path`.
Status PlaceBlob(const std::string& content, const std::string& path, const std::string& fresh,
                 bool is_new) {
    if (content.ends_with(kPartSuffix)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the file system has no symbolic links, which a shard needs. Pull the "
                         "model without --shard, or set HF_HUB_CACHE to a folder on another file "
                         "system",
                         path);
    }
    if (is_new) {
        if (::rename(content.c_str(), path.c_str()) == 0) return {};
        return PathError(path, "rename to", errno);
    }
    std::error_code error;
    fs::copy_file(content, fresh, fs::copy_options::overwrite_existing, error);
    if (!error) fs::rename(fresh, path, error);
    if (!error) return {};
    ::unlink(fresh.c_str());
    return PathError(path, "copy to", error.value());
}

}  // namespace

std::string RepoFolder(const Config& config, const RepoSpec& spec) {
    return config.cache + "/" + RepoName(spec);
}

std::string BlobPath(const std::string& repo_folder, const RepoFile& file) {
    return repo_folder + "/blobs/" + file.hash;
}

std::string PartPath(const std::string& repo_folder, const RepoFile& file) {
    return BlobPath(repo_folder, file) + kPartSuffix;
}

std::string SnapshotPath(const std::string& folder, const std::string& commit) {
    return folder + "/snapshots/" + commit;
}

std::string ShardFolder(const std::string& repo_folder) {
    return repo_folder + "/weft-shards";
}

Status MakeFolder(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return PathError(path, "make this folder", error.value());
    return {};
}

bool HasBlob(const std::string& repo_folder, const RepoFile& file) {
    struct stat info {};
    return ::stat(BlobPath(repo_folder, file).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           static_cast<uint64_t>(info.st_size) == file.bytes;
}

bool HasCopy(const std::string& folder, const std::string& commit, const RepoFile& file) {
    const std::string path = SnapshotPath(folder, commit) + "/" + file.path;
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           static_cast<uint64_t>(info.st_size) == file.bytes;
}

Status LinkBlob(const std::string& folder, const std::string& commit, const RepoFile& file,
                const std::string& content, bool is_new) {
    const std::string path = SnapshotPath(folder, commit) + "/" + file.path;
    const std::string target = fs::path(content).lexically_relative(Parent(path));
    std::error_code error;
    if (fs::read_symlink(path, error) == target && !error) return {};
    WEFT_TRY(MakeFolder(Parent(path)));
    const std::string fresh = FreshName(path);
    if (::symlink(target.c_str(), fresh.c_str()) != 0) {
        if (!LacksHardLinks(errno)) return PathError(fresh, "link", errno);
        return PlaceBlob(content, path, fresh, is_new);
    }
    return Replace(fresh, path, "link");
}

Status CompletePart(const std::string& repo_folder, const RepoFile& file) {
    const std::string part = PartPath(repo_folder, file), blob = BlobPath(repo_folder, file);
    // Until the links of shards lead to the new name, both names and the note exist.
    ::unlink(blob.c_str());
    if (::link(part.c_str(), blob.c_str()) != 0 && ::rename(part.c_str(), blob.c_str()) != 0) {
        return MakeError(ErrorCode::kIo, "{}: cannot rename to {}: {}", part, blob,
                         std::strerror(errno));
    }
    std::vector<fs::path> links;
    std::error_code error;
    fs::recursive_directory_iterator it(ShardFolder(repo_folder) + "/snapshots", error), end;
    for (; !error && it != end; it.increment(error)) {
        std::error_code gone;
        const fs::path target = fs::read_symlink(it->path(), gone);
        if (!gone && target.filename() == fs::path(part).filename()) links.push_back(it->path());
    }
    for (const fs::path& link : links) {
        const std::string fresh = FreshName(link.string());
        const fs::path target = fs::read_symlink(link, error).parent_path() / file.hash;
        if (::symlink(target.c_str(), fresh.c_str()) != 0) return PathError(fresh, "link", errno);
        WEFT_TRY(Replace(fresh, link.string(), "link"));
    }
    ::unlink(part.c_str());
    ::unlink((part + kNoteSuffix).c_str());
    return {};
}

Status WriteRef(const std::string& folder, const RepoSpec& spec, const std::string& commit) {
    if (IsCommit(spec.revision)) return {};
    const std::string path = folder + "/refs/" + spec.revision;
    const auto there = ReadTextFile(path, 4096);
    if (there.ok() && *there == commit) return {};
    WEFT_TRY(MakeFolder(Parent(path)));
    const std::string fresh = FreshName(path);
    WEFT_TRY(WriteFile(fresh, std::as_bytes(std::span(commit))));
    return Replace(fresh, path, "rename to");
}

void TagCache(const Config& config) {
    const std::string path = config.cache + "/CACHEDIR.TAG";
    std::error_code error;
    if (fs::exists(path, error) || error) return;
    constexpr std::string_view kTag =
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# A cache of files from the Hugging Face Hub; https://bford.info/cachedir/\n";
    [[maybe_unused]] const Status ignored = WriteFile(path, std::as_bytes(std::span(kTag)));
}

Status CheckSpace(const std::string& folder, uint64_t needed) {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0) return PathError(folder, "ask for space", errno);
    const uint64_t free = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
    if (needed <= free) return {};
    return MakeError(ErrorCode::kIo,
                     "{}: {} remain to be downloaded, but only {} are free. Free some space, or "
                     "set HF_HUB_CACHE to a folder on a larger disk",
                     folder, BytesText(needed), BytesText(free));
}

Result<BlobLock> BlobLock::Take(const Config& config, const RepoSpec& spec, const RepoFile& file,
                                const std::function<void()>& on_wait) {
    const std::string folder = config.cache + "/.locks/" + RepoName(spec);
    WEFT_TRY(MakeFolder(folder));
    const std::string path = folder + "/" + file.hash + ".lock";
    const std::string repo_folder = RepoFolder(config, spec);
    std::pair<uint64_t, int64_t> seen;
    Deadline deadline = Deadline::In(config.timeout_ms);
    for (bool first = true;; first = false) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
        if (fd < 0) return PathError(path, "open this lock", errno);
        BlobLock lock(fd);
        struct stat info {};
        if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
            // The last holder may have removed the file between our open and our lock.
            if (::fstat(fd, &info) == 0 && info.st_nlink > 0) return lock;
            continue;
        }
        // (On a file system without locks, other programs can't be detected.)
        if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) return lock;
        if (errno != EWOULDBLOCK && errno != EINTR) return PathError(path, "lock", errno);
        if (first && on_wait) on_wait();
        const auto state = PartialState(repo_folder, file);
        if (first || state != seen) deadline = Deadline::In(config.timeout_ms);
        seen = state;
        if (deadline.expired()) {
            return MakeError(
                ErrorCode::kTimeout,
                "{}: another program holds the lock {} and has neither downloaded nor checked "
                "anything for {:.0f} s. Is it stopped? 'fuser {}' lists it",
                file.path, path, static_cast<double>(config.timeout_ms) * 1e-3, path);
        }
        WEFT_TRY(Pause(config, kLockPollMs));
    }
}

void NoteUnread(const std::string& folder, std::vector<std::string>* unread) {
    if (unread == nullptr || ::access(folder.c_str(), R_OK | X_OK) == 0 || errno == ENOENT) return;
    unread->push_back(PathError(folder, "list", errno).message);
}

std::vector<RepoFile> FilesIn(const std::string& folder, std::vector<std::string>* unread) {
    std::vector<RepoFile> files;
    NoteUnread(folder, unread);
    std::error_code error;
    const auto follow = fs::directory_options::skip_permission_denied;
    fs::recursive_directory_iterator it(folder, follow, error), end;
    for (; !error && it != end && files.size() < kMostFiles; it.increment(error)) {
        const std::string path = it->path().string();
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0) {
            if (errno != ENOENT && unread != nullptr) {
                unread->push_back(PathError(path, "read", errno).message);
            }
            continue;
        }
        if (S_ISDIR(info.st_mode)) NoteUnread(path, unread);
        if (!S_ISREG(info.st_mode)) continue;
        RepoFile file;
        file.path = path.substr(folder.size() + 1);
        file.bytes = static_cast<uint64_t>(info.st_size);
        files.push_back(std::move(file));
    }
    std::ranges::sort(files, {}, &RepoFile::path);
    return files;
}

Result<std::string> FindCached(const Config& config, const RepoSpec& spec, std::string* older) {
    if (spec.is_dataset) {
        return MakeError(ErrorCode::kUsage,
                         "{}: a data set; expected a model. It belongs to --data", spec.Text());
    }
    const std::string folder = RepoFolder(config, spec), shards = ShardFolder(folder);
    auto whole = FindNewest(folder, config, spec);
    if (whole.ok() || whole.error().code != ErrorCode::kNotFound) return whole;
    auto shard = FindNewest(shards, config, spec);
    if (shard.ok()) return shard;
    for (const std::string& each : {folder, shards}) {
        std::string found = FindOlder(each, config, spec, older);
        if (!found.empty()) return found;
    }
    return whole;
}

// The paths of the split in a snapshot.
static Result<std::vector<std::string>> FindDataIn(const std::string& folder,
                                                   const std::string& commit, const Config& config,
                                                   const RepoSpec& spec) {
    const auto list = ReadTextFile(DataListPath(folder, spec, commit), kMostIndexBytes);
    if (!list.ok() && list.error().code != ErrorCode::kNotFound) return list.error();
    if (!list.ok()) return NotCached(spec, "not in the cache folder " + config.cache);
    std::vector<std::string> paths;
    for (size_t at = 0, end = 0; (end = list->find('\n', at)) != list->npos; at = end + 1) {
        const std::string name = list->substr(at, end - at);
        paths.push_back(SnapshotPath(folder, commit) + "/" + name);
        std::error_code error;
        if (!IsSafePath(name) || !fs::is_regular_file(paths.back(), error)) {
            return NotCached(spec, "incomplete in the cache folder " + config.cache);
        }
    }
    if (paths.empty()) return NotCached(spec, "incomplete in the cache folder " + config.cache);
    return paths;
}

Result<std::vector<std::string>> FindCachedData(const Config& config, const RepoSpec& spec) {
    const std::string folder = RepoFolder(config, spec);
    WEFT_ASSIGN(const std::string commit, CommitOf(folder, spec, config));
    auto newest = FindDataIn(folder, commit, config, spec);
    if (newest.ok() || newest.error().code != ErrorCode::kNotFound) return newest;
    for (const std::string& older : OlderCommits(folder, spec, commit)) {
        auto found = FindDataIn(folder, older, config, spec);
        if (!found.ok()) continue;
        Log(LogLevel::kWarning, "{}", OlderText(spec, older, commit));
        return found;
    }
    return newest;
}

Status WriteDataFiles(const Config& config, const RepoSpec& spec, const std::string& commit,
                      const std::vector<RepoFile>& files) {
    const std::string path = DataListPath(RepoFolder(config, spec), spec, commit);
    std::string text;
    for (const RepoFile& file : files) text += file.path + "\n";
    WEFT_TRY(MakeFolder(Parent(path)));
    const std::string fresh = FreshName(path);
    WEFT_TRY(WriteFile(fresh, std::as_bytes(std::span(text))));
    return Replace(fresh, path, "rename to");
}

Result<std::string> FindCached(const std::string& word) {
    WEFT_ASSIGN(const RepoSpec spec, ParseSpec(word));
    WEFT_ASSIGN(const Config config, ConfigFromEnvironment());
    std::string older;
    auto found = FindCached(config, spec, &older);
    if (!older.empty()) Log(LogLevel::kWarning, "{}", older);
    return found;
}

}  // namespace weft::hub
