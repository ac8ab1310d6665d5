#include "engine/page_store/folder_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "base/confine.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/own_folder.h"
#include "base/start_thread.h"

namespace weft::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".page", kFreshSuffix = ".tmp";
constexpr size_t kKeyDigits = 2 * std::tuple_size_v<PageKey>;
// An interrupted write is this old, unless the hosts' clocks differ by hours.
constexpr int64_t kAbandonedS = 3600;
constexpr int64_t kSecondNs = 1'000'000'000;
// Bytes that a file needs in addition to its size, at most.
constexpr int64_t kFileBytes = 4096;

struct Header {
    std::array<char, 8> magic{'w', 'e', 'f', 't', 'p', 'a', 'g', 'e'};
    uint32_t format = 1;
    uint32_t crc = 0;  // of the fields below and the bytes of the page
    PageKey key{};
    uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 56);

Header HeaderOf(const PageKey& key, std::span<const std::byte> bytes) {
    Header header;
    header.key = key;
    header.bytes = bytes.size();
    const auto fields = std::as_bytes(std::span(&header, 1)).subspan(offsetof(Header, key));
    header.crc = Crc32c(bytes, Crc32c(fields));
    return header;
}

int64_t SecondsSinceChange(const struct stat& info) {
    return std::time(nullptr) - info.st_mtim.tv_sec;
}

int64_t NsOf(const timespec& time) {
    return time.tv_sec * kSecondNs + time.tv_nsec;
}

// Access and change.
std::array<timespec, 2> TimesOf(int64_t ns) {
    const timespec time{static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
    return {time, time};
}

// Whether `name` is the name of a page, or of a page that is being written.
bool IsPageName(std::string_view name, bool fresh) {
    if (name.size() < kKeyDigits || !name.substr(kKeyDigits).starts_with(kSuffix)) return false;
    const std::string_view rest = name.substr(kKeyDigits + kSuffix.size());
    const std::string_view key = name.substr(0, kKeyDigits);
    return std::ranges::all_of(key, [](char c) { return std::isxdigit(c) != 0; }) &&
           (fresh ? rest.ends_with(kFreshSuffix) : rest.empty());
}

// The key in the name of a page.
PageKey KeyOf(std::string_view name) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    PageKey key{};
    for (size_t i = 0; i < key.size(); ++i) {
        key[i] = static_cast<uint8_t>(digit(name[2 * i]) * 16 + digit(name[2 * i + 1]));
    }
    return key;
}

// Reads or writes all bytes of `parts`. Returns errno; 0: done; EIO: the file is too short.
template <typename Transfer>
int TransferAll(std::span<iovec> parts, Transfer transfer) {
    while (!parts.empty()) {
        const ssize_t moved = transfer(parts.data(), static_cast<int>(parts.size()));
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return moved < 0 ? errno : EIO;
        auto left = static_cast<size_t>(moved);
        while (!parts.empty() && left >= parts.front().iov_len) {
            left -= parts.front().iov_len;
            parts = parts.subspan(1);
        }
        if (parts.empty()) return 0;
        parts.front().iov_base = static_cast<std::byte*>(parts.front().iov_base) + left;
        parts.front().iov_len -= left;
    }
    return 0;
}

// used_ns: the file's time.
int WriteFresh(const std::string& path, const Header& header, std::span<const std::byte> bytes,
               int64_t used_ns) {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid()) return errno;
    Header head = header;
    std::array<iovec, 2> parts{iovec{&head, sizeof head},
                               iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
    const int error = TransferAll(std::span(parts).first(bytes.empty() ? 1 : 2),
                                  [&](iovec* at, int n) { return ::writev(fd.get(), at, n); });
    ::futimens(fd.get(), TimesOf(used_ns).data());
    // (Some network file systems report a full disk only when the file is closed.)
    const int copy = error == 0 ? ::dup(fd.get()) : -1;
    return error != 0 ? error : copy < 0 || ::close(copy) != 0 ? errno : 0;
}

}  // namespace

Result<std::unique_ptr<FolderStore>> FolderStore::Open(const std::string& path,
                                                       int64_t most_bytes) {
    const size_t end = path.find_last_not_of('/');
    const std::string folder = path.substr(0, end == std::string::npos ? 1 : end + 1);
    WEFT_TRY(MakeOwnFolder("--cache-dir", folder));
    std::unique_ptr<FolderStore> store(new FolderStore(folder, most_bytes));
    // A folder that cannot be written is an error now, not with the first page.
    const std::string trial = FreshName(store->PathOf({}));
    if (const int error = WriteFresh(trial, {}, {}, store->NextUse());
        error != 0 && error != ENOSPC && error != EDQUOT) {
        return MakeError(ErrorCode::kIo, "--cache-dir {}: cannot write a file: {}", folder,
                         std::strerror(error));
    }
    ::unlink(trial.c_str());
    store->Trim();
    WEFT_TRY(
        StartThread(store->writer_, [one = store.get()] { one->Write(); }, {.signals = false}));
    return store;
}

FolderStore::~FolderStore() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
        flush_until_ns_ = NowNs() + kFlushNs;
    }
    changed_.notify_one();
    if (writer_.joinable()) writer_.join();
}

std::string FolderStore::PathOf(const PageKey& key) const {
    return folder_ + "/" + Hex(key) + std::string(kSuffix);
}

bool FolderStore::Has(const PageKey& key) {
    struct stat info {};
    return ::lstat(PathOf(key).c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool FolderStore::IsKept(const PageKey& key) {
    const std::lock_guard lock(mutex_);
    return kept_.contains(key) || NowNs() < paused_until_ns_;
}

void FolderStore::Put(const PageKey& key, const PageBytes& bytes) {
    const auto size = static_cast<int64_t>(bytes->size());
    const std::lock_guard lock(mutex_);
    const bool full = queued_bytes_ > 0 && queued_bytes_ + size > kQueueBytes;
    if (full || NowNs() < paused_until_ns_ || size > most_bytes_ / 4) {
        ++counts_.dropped;
        return;
    }
    Kept& kept = kept_[key];
    kept.used_ns = NextUse();
    if (kept.bytes == nullptr) {
        kept.bytes = bytes;
        queued_bytes_ += size;
    }
    Queue(key, kept);
}

// The uses of a page are stored now and then, because each use of a long text would change
// thousands of files.
void FolderStore::Touch(const PageKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key);
    if (found == kept_.end()) return;
    Kept& kept = found->second;
    kept.used_ns = NextUse();
    const bool stale = kept.used_ns - kept.stored_ns > kRecentS * kSecondNs;
    if (stale) Queue(key, kept);
}

// Needs the lock. Later uses have later times.
int64_t FolderStore::NextUse() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return last_use_ns_ = std::max(NsOf(now), last_use_ns_ + 1);
}

// Needs the lock.
void FolderStore::Queue(const PageKey& key, Kept& kept) {
    if (std::exchange(kept.waits, true)) return;
    queue_.push_back(key);
    changed_.notify_one();
}

bool FolderStore::Get(const PageKey& key, std::span<std::byte> out) {
    const std::string path = PathOf(key);
    const Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    bool good = fd.valid() && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
    const bool found = good && CheckOpened(fd.get(), path).ok();
    good = found && std::cmp_equal(info.st_size, sizeof(Header) + out.size());
    Header header;
    std::array<iovec, 2> parts{iovec{&header, sizeof header}, iovec{out.data(), out.size()}};
    good = good && TransferAll(std::span(parts).first(out.empty() ? 1 : 2),
                               [&](iovec* at, int n) { return ::readv(fd.get(), at, n); }) == 0;
    if (good) {
        const Header expected = HeaderOf(key, out);
        good = std::memcmp(&header, &expected, sizeof header) == 0;
    }
    const bool renews = good && SecondsSinceChange(info) > kRecentS;
    if (renews) ::futimens(fd.get(), nullptr);
    if (found && !good) ::unlink(path.c_str());
    const std::lock_guard lock(mutex_);
    if (good) counts_.read_bytes += static_cast<int64_t>(out.size());
    if (found && !good) ++counts_.damaged;
    if (good) {
        Kept& kept = kept_[key];
        kept.used_ns = NextUse();
        kept.stored_ns = renews ? kept.used_ns : NsOf(info.st_mtim);
    } else if (const auto at = kept_.find(key); at != kept_.end()) {
        at->second.stored_ns = 0;
        if (!at->second.waits) kept_.erase(at);
    }
    return good;
}

size_t FolderStore::known() const {
    const std::lock_guard lock(mutex_);
    return kept_.size();
}

PageStoreCounts FolderStore::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

// ---- Writing: on its own thread -----------------------------------------------------------------

void FolderStore::Write() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
        if (queue_.empty() || (ends_ && NowNs() > flush_until_ns_)) return;
        const PageKey key = queue_.front();
        queue_.pop_front();
        Kept& waiting = kept_.at(key);  // pages that wait stay there
        waiting.waits = false;
        const Kept kept = waiting;
        waiting.bytes = nullptr;
        const bool paused = kept.bytes != nullptr && NowNs() < paused_until_ns_;
        if (paused) ++counts_.dropped;
        if (paused) kept_.erase(key);
        lock.unlock();
        const bool there = !paused && kept.stored_ns > 0 && Renew(key, kept.used_ns);
        if (!paused && !there && kept.bytes != nullptr) WriteOne(key, kept);
        lock.lock();
        if (kept.bytes != nullptr) queued_bytes_ -= std::ssize(*kept.bytes);
    }
}

// Changes the time of a page's file. Returns false and forgets the page if the file is missing.
bool FolderStore::Renew(const PageKey& key, int64_t used_ns) {
    const bool there = ::utimensat(AT_FDCWD, PathOf(key).c_str(), TimesOf(used_ns).data(),
                                   AT_SYMLINK_NOFOLLOW) == 0 ||
                       errno != ENOENT;
    const std::lock_guard lock(mutex_);
    const auto at = kept_.find(key);
    if (at == kept_.end()) return there;
    at->second.stored_ns = there ? used_ns : 0;
    if (!there && !at->second.waits) kept_.erase(at);
    return there;
}

void FolderStore::WriteOne(const PageKey& key, const Kept& kept) {
    const std::string path = PathOf(key);
    // A file of another process that is there already may be damaged, so it is replaced.
    const int64_t bytes = std::ssize(*kept.bytes) + kFileBytes;
    if (untrimmed_bytes_ + bytes > most_bytes_ / 64) Trim();
    untrimmed_bytes_ += bytes;
    const Header header = HeaderOf(key, *kept.bytes);
    const std::string fresh = FreshName(path);
    int error = WriteFresh(fresh, header, *kept.bytes, kept.used_ns);
    if (error == ENOENT) {  // the folder was removed
        ::mkdir(folder_.c_str(), 0700);
        error = WriteFresh(fresh, header, *kept.bytes, kept.used_ns);
    }
    if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) ::unlink(fresh.c_str());
    NoteWritten(key, kept, error);
}

void FolderStore::NoteWritten(const PageKey& key, const Kept& written, int error) {
    if (error != 0 && !std::exchange(warned_, true)) {
        Log(LogLevel::kWarning,
            "--cache-dir {}: cannot write a page: {}. The server continues without writing pages, "
            "and tries again every {} s",
            folder_, std::strerror(error), kPauseNs / 1'000'000'000);
    }
    const std::lock_guard lock(mutex_);
    if (error == 0) {
        counts_.held_bytes += std::ssize(*written.bytes);
        counts_.written_bytes += std::ssize(*written.bytes);
        Kept& kept = kept_[key];
        kept.used_ns = std::max(kept.used_ns, written.used_ns);
        kept.stored_ns = written.used_ns;
        return;
    }
    ++counts_.dropped;
    if (const auto at = kept_.find(key); at != kept_.end() && !at->second.waits) {
        kept_.erase(at);
    }
    paused_until_ns_ = NowNs() + kPauseNs;
}

// The pages in the folder; removes abandoned files. Returns the bytes of all pages.
int64_t FolderStore::List(std::vector<Entry>& entries) const {
    int64_t bytes = 0;
    std::error_code error;
    for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        const bool fresh = IsPageName(name, true);
        struct stat info {};
        if (!fresh && !IsPageName(name, false)) continue;
        const std::string path = at->path().string();
        if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
        if (fresh && SecondsSinceChange(info) > kAbandonedS) ::unlink(path.c_str());
        if (fresh) continue;
        entries.push_back({KeyOf(name), info.st_size + kFileBytes, NsOf(info.st_mtim)});
        bytes += entries.back().bytes;
    }
    return bytes;
}

// Sets the last uses by this process, and forgets the pages that others have removed.
void FolderStore::Compare(std::vector<Entry>& entries) {
    std::ranges::sort(entries, {}, &Entry::key);
    const std::lock_guard lock(mutex_);
    auto entry = entries.begin();
    for (auto at = kept_.begin(); at != kept_.end();) {
        while (entry != entries.end() && entry->key < at->first) ++entry;
        const bool there = entry != entries.end() && entry->key == at->first;
        if (there) entry->used_ns = std::max(entry->used_ns, at->second.used_ns);
        at = there || at->second.waits ? std::next(at) : kept_.erase(at);
    }
}

// Removes what exceeds the limit.
void FolderStore::Trim() {
    std::vector<Entry> entries;
    int64_t bytes = List(entries);
    Compare(entries);
    untrimmed_bytes_ = 0;
    std::vector<PageKey> removed;
    if (bytes > most_bytes_ / 16 * 15) {
        std::ranges::sort(entries, {}, &Entry::used_ns);
        for (const Entry& entry : entries) {
            if (bytes <= most_bytes_ / 8 * 7) break;
            if (::unlink(PathOf(entry.key).c_str()) != 0 && errno != ENOENT) continue;
            bytes -= entry.bytes;
            removed.push_back(entry.key);
        }
    }
    const std::lock_guard lock(mutex_);
    counts_.held_bytes = bytes;
    for (const PageKey& key : removed) {
        const auto at = kept_.find(key);
        if (at != kept_.end() && !at->second.waits) kept_.erase(at);
    }
}

}  // namespace weft::engine
