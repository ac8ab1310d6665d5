#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/file.h"
#include "base/large_file.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "hub/digest.h"
#include "hub/part.h"

namespace weft::hub {
namespace {

constexpr uint64_t kLeastPiece = 4 << 20, kMostPiece = 64 << 20;
constexpr size_t kFlushBytes = 256 << 10;
constexpr size_t kHashStep = 8 << 20;
constexpr uint64_t kSyncStep = 64 << 20;
constexpr int kMostFailures = 10;  // in a row on one connection, without a byte
constexpr int kMostStarts = 3;
constexpr int64_t kNoteMs = 250, kSafeNoteMs = 1000, kFlushMs = 250, kProgressMs = 100,
                  kTickMs = 20;
constexpr uint64_t kLeastBytesPerSecond = 1024;

Error FileError(const std::string& path, const char* what) {
    const int error = errno;
    std::string hint;
    if (error == ENOSPC || error == EDQUOT) {
        hint =
            ". The disk is full: free some space and run the same command again; downloaded "
            "data is kept";
    } else if (error == EFBIG) {
        hint = LargeFileAdvice();
    }
    return MakeError(ErrorCode::kIo, "{}: cannot {}: {}{}", path, what, std::strerror(error), hint);
}

// "bytes 10-19/200": [10, 20) of 200.
bool ParseContentRange(const std::string& text, ByteRange& range, uint64_t& total) {
    if (!text.starts_with("bytes ")) return false;
    uint64_t last = 0;
    const char* const end = text.data() + text.size();
    auto part = std::from_chars(text.data() + 6, end, range.begin);
    if (part.ec != std::errc() || part.ptr == end || *part.ptr != '-') return false;
    part = std::from_chars(part.ptr + 1, end, last);
    if (part.ec != std::errc() || part.ptr == end || *part.ptr != '/') return false;
    part = std::from_chars(part.ptr + 1, end, total);
    if (part.ec != std::errc() || part.ptr != end || last < range.begin || last >= total) {
        return false;
    }
    range.end = last + 1;
    return true;
}

// The partial file and its note.
class PartFile {
  public:
    PartFile(std::string path, const RepoFile& file) : path_(std::move(path)), file_(file) {}

    const std::string& path() const { return path_; }
    int fd() const { return fd_.get(); }

    // Opens the partial file and returns its note; an empty note if it can't be resumed.
    Result<PartNote> Open() {
        fd_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
        struct stat info {};
        if (!fd_.valid() || ::fstat(fd(), &info) != 0) return FileError(path_, "open for writing");
        const auto text = ReadTextFile(NotePath(), kMostNoteBytes);
        if (text.ok()) {
            auto note = ParseNote(*text);
            const bool fits = note.ok() && note->hash == file_.hash && note->size == file_.bytes &&
                              static_cast<uint64_t>(info.st_size) == file_.bytes;
            if (fits) return note;
            Log(LogLevel::kInfo, "{}: the partial file belongs to other contents: starting over",
                file_.path);
        }
        // Unlinked instead of truncated: another process may be reading its ranges.
        if (info.st_size > 0) {
            Discard();
            fd_ = Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
            if (!fd_.valid()) return FileError(path_, "open for writing");
        }
        if (::ftruncate(fd(), static_cast<off_t>(file_.bytes)) != 0) {
            return FileError(path_, "give it its size");
        }
        PartNote note;
        note.hash = file_.hash;
        note.size = file_.bytes;
        return note;
    }
    // Replaces the note atomically, so that a kill leaves the old or the new one. safe: the bytes
    // that the note lists are synced to disk first.
    Status Save(const PartNote& note, bool safe) const {
        if (safe) WEFT_TRY(Sync());
        const std::string text = PrintNote(note), fresh = NotePath() + ".new";
        WEFT_TRY(WriteFile(fresh, std::as_bytes(std::span(text))));
        if (::rename(fresh.c_str(), NotePath().c_str()) != 0) return FileError(fresh, "rename");
        return {};
    }
    Status Sync() const {
        if (::fdatasync(fd()) != 0) return FileError(path_, "write to the disk");
        return {};
    }
    // As Sync, in steps that other programs see.
    Status SyncAll() const {
        for (uint64_t at = 0; at < file_.bytes; at += kSyncStep) {
            // (Not all file systems have this; then the last step writes everything.)
            ::sync_file_range(
                fd(), static_cast<off_t>(at), static_cast<off_t>(kSyncStep),
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
            ShowLife();
        }
        return Sync();
    }
    void ShowLife() const { ::futimens(fd(), nullptr); }
    void Discard() {
        fd_.Reset();
        ::unlink(path_.c_str());
        ::unlink(NotePath().c_str());
    }

  private:
    std::string NotePath() const { return path_ + kNoteSuffix; }

    const std::string path_;
    const RepoFile& file_;
    Fd fd_;
};

// One attempt to download a file, from its present ranges to all of it, or to `wanted` (if not
// null).
class Job {
  public:
    Job(const Config& config, const std::string& url, const RepoFile& file, PartFile& part,
        const RangeSet* wanted, const OnProgress& on_progress)
        : config_(config),
          url_(url),
          file_(file),
          part_(part),
          wanted_(wanted),
          on_progress_(on_progress),
          digest_(file.large, file.bytes) {}

    // Returns when everything is downloaded, or with an error after saving the note.
    Status Run(PartNote note) {
        note_ = std::move(note);
        resumed_ = note_.done.bytes();
        if (wanted_ == nullptr) hash_buffer_.resize(std::min<uint64_t>(kHashStep, file_.bytes));
        RunThreads(config_.connections);
        if (whole_ && wanted_ != nullptr && !error_) error_ = NeedsRanges();
        if (whole_ && !error_) {  // detected during the download
            halt_ = false;
            RunThreads(1);
        }
        if (changed_ && !error_) {
            error_ =
                MakeError(ErrorCode::kCorrupt,
                          "{}: the server's ETag changes from answer to answer, so a part of the "
                          "file can't be checked. Pull the model without --shard",
                          file_.path);
        }
        if (error_) {
            const Status saved = part_.Save(note_, wanted_ != nullptr);
            if (!saved.ok()) Log(LogLevel::kWarning, "{}", saved.error().message);
            return *error_;
        }
        while (!error_ && HashSome()) {
            ShowSometimes();
            if (config_.Stopped()) Fail(MakeError(ErrorCode::kCancelled, "stopped"));
        }
        if (wanted_ != nullptr || error_) SaveNote();
        if (error_) return *error_;
        Show();
        return {};
    }
    bool is_whole() const { return note_.done.Prefix() == file_.bytes; }

    bool changed() const { return changed_; }
    std::string Hash() { return digest_.Finish(); }
    Downloaded downloaded() const { return {fetched_, resumed_}; }

  private:
    class PieceSink;

    void RunThreads(int connections) {
        CutMissing(connections);
        const auto count = std::min(static_cast<size_t>(std::max(connections, 1)), queue_.size());
        gain_ns_ = NowNs();
        gain_bytes_ = fetched_;
        std::vector<std::thread> threads;
        while (threads.size() < count) {
            NoteActive(1);
            std::thread thread;
            const ThreadOptions options{.wait_ms = threads.empty() ? kThreadMs : 0};
            const Status started = StartThread(
                thread, [this] { Work(); }, options);
            if (!started.ok()) {
                NoteActive(-1);
                if (threads.empty()) Fail(started.error());
                break;
            }
            threads.push_back(std::move(thread));
        }
        Supervise();
        for (std::thread& thread : threads) thread.join();
    }

    void CutMissing(int connections) {
        queue_.clear();
        if (whole_) {
            queue_.push_back({0, file_.bytes});
            return;
        }
        std::vector<ByteRange> gaps;
        if (wanted_ == nullptr) gaps = note_.done.Missing(file_.bytes);
        for (const ByteRange& range : Wanted()) {
            for (const ByteRange& gap : note_.done.MissingOf(range)) gaps.push_back(gap);
        }
        uint64_t missing = 0;
        for (const ByteRange& gap : gaps) missing += gap.end - gap.begin;
        const auto share = missing / static_cast<uint64_t>(std::max(connections, 1) * 4);
        const uint64_t piece = std::clamp(share, kLeastPiece, kMostPiece);
        for (const ByteRange& gap : gaps) {
            for (uint64_t at = gap.begin; at < gap.end; at += std::min(piece, gap.end - at)) {
                queue_.push_back({at, at + std::min(piece, gap.end - at)});
            }
        }
    }

    std::span<const ByteRange> Wanted() const {
        return wanted_ == nullptr ? std::span<const ByteRange>() : wanted_->ranges();
    }
    Error NeedsRanges() const {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: the server sends only whole files (it ignores Range), so a shard "
                         "cannot be downloaded. Pull the model without --shard",
                         file_.path);
    }

    // The calling thread's loop while other threads download.
    void Supervise() {
        const int64_t note_ms = wanted_ == nullptr ? kNoteMs : kSafeNoteMs;
        int64_t note_ns = NowNs();
        std::unique_lock lock(mutex_);
        while (active_ > 0) {
            lock.unlock();
            const bool hashed = HashSome();
            ShowSometimes();
            if (NowNs() - note_ns > note_ms * 1'000'000) {
                note_ns = NowNs();
                SaveNote();
            }
            lock.lock();
            CheckGain();
            if (!hashed && active_ > 0)
                changed_state_.wait_for(lock, std::chrono::milliseconds(kTickMs));
        }
    }

    void ShowSometimes() {
        if (NowNs() - shown_ns_ <= kProgressMs * 1'000'000) return;
        shown_ns_ = NowNs();
        Show();
    }

    void Show() {
        std::unique_lock lock(mutex_);
        const uint64_t there = note_.done.bytes(), fetched = fetched_;
        lock.unlock();
        if (on_progress_) on_progress_(there, fetched);
    }

    void SaveNote() {
        std::unique_lock lock(mutex_);
        const PartNote copy = note_;
        lock.unlock();
        if (copy.done.bytes() == noted_bytes_) return;
        noted_bytes_ = copy.done.bytes();
        // A shard has no final hash check that would detect bytes missing on disk.
        const Status saved = part_.Save(copy, wanted_ != nullptr);
        if (!saved.ok()) Fail(saved.error());
    }

    // Called with the lock held: ends a job without progress.
    void CheckGain() {
        const uint64_t bytes = fetched_;
        const auto timeout = static_cast<uint64_t>(config_.timeout_ms);
        if (bytes - gain_bytes_ >= std::max<uint64_t>(1, timeout * kLeastBytesPerSecond / 1000)) {
            gain_bytes_ = bytes;
            gain_ns_ = NowNs();
        }
        if (NowNs() - gain_ns_ <= config_.timeout_ms * 1'000'000 || error_) return;
        error_ = MakeError(
            ErrorCode::kTimeout,
            "{}: given up: {} bytes in {:.0f} s, less than 1 KiB/s{}{}. Downloaded data is kept; "
            "run the same command to continue",
            file_.path, bytes - gain_bytes_, static_cast<double>(config_.timeout_ms) * 1e-3,
            last_trouble_.empty() ? "" : "; last error: ", last_trouble_);
        halt_ = true;
    }

    // Hashes one part of the contiguous beginning; false: there is nothing to hash.
    bool HashSome() {
        if (wanted_ != nullptr) return false;
        std::unique_lock lock(mutex_);
        const uint64_t prefix = note_.done.Prefix();
        lock.unlock();
        if (prefix <= hashed_) return false;
        const size_t now = std::min<uint64_t>(prefix - hashed_, hash_buffer_.size());
        for (size_t at = 0; at < now;) {
            const ssize_t got = ::pread(part_.fd(), hash_buffer_.data() + at, now - at,
                                        static_cast<off_t>(hashed_ + at));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) {
                Fail(FileError(part_.path(), "read back"));
                return false;
            }
            at += static_cast<size_t>(got);
        }
        digest_.Add(std::span(hash_buffer_).first(now));
        part_.ShowLife();
        // Start writing to the disk now, so that the final sync is short.
        ::sync_file_range(part_.fd(), static_cast<off_t>(hashed_), static_cast<off_t>(now),
                          SYNC_FILE_RANGE_WRITE);
        hashed_ += now;
        return true;
    }

    void Fail(Error error) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::move(error);
        halt_ = true;
    }

    void Work() {
        {
            Connection connection(config_);
            ByteRange piece;
            while (Take(piece)) {
                const Status fetched = Fetch(connection, piece);
                if (!fetched.ok()) Fail(fetched.error());
            }
        }
        NoteActive(-1);
    }

    void NoteActive(int more) {
        const std::lock_guard lock(mutex_);
        active_ += more;
        changed_state_.notify_all();
    }

    bool Take(ByteRange& piece) {
        const std::lock_guard lock(mutex_);
        if (halt_ || queue_.empty()) return false;
        piece = queue_.front();
        queue_.pop_front();
        return true;
    }

    // The URL to request: the Hub's, or the target of its last redirect.
    std::string CurrentUrl(bool& direct) {
        const std::lock_guard lock(mutex_);
        direct = !direct_url_.empty();
        return direct ? direct_url_ : url_;
    }

    Status Fetch(Connection& connection, ByteRange piece);
    Status Recover(Outcome& outcome, bool direct, int failures);

    const Config& config_;
    const std::string& url_;
    const RepoFile& file_;
    PartFile& part_;
    const RangeSet* wanted_;
    const OnProgress& on_progress_;

    std::mutex mutex_;  // guards the members up to the blank line
    std::condition_variable changed_state_;
    PartNote note_;
    std::deque<ByteRange> queue_;
    std::optional<Error> error_;
    std::string direct_url_, last_trouble_;
    int active_ = 0;
    uint64_t fetched_ = 0;
    int64_t not_before_ns_ = 0;
    bool whole_ = false;    // the server ignores Range
    bool changed_ = false;  // the ETag changed

    std::atomic<bool> halt_{false};
    // Used only by the calling thread:
    uint64_t resumed_ = 0, hashed_ = 0, noted_bytes_ = 0, gain_bytes_ = 0;
    int64_t gain_ns_ = 0, shown_ns_ = 0;
    Digest digest_;
    std::vector<std::byte> hash_buffer_;
};

// Writes one piece where it belongs.
class Job::PieceSink : public Sink {
  public:
    PieceSink(Job& job, ByteRange piece, bool ranged) : job_(job), piece_(piece), ranged_(ranged) {
        buffer_.reserve(kFlushBytes + (64 << 10));
    }
    uint64_t at() const { return piece_.begin; }

    Status Head(const Response& response) override {
        const std::lock_guard lock(job_.mutex_);
        const RepoFile& file = job_.file_;
        if (!response.linked_etag.empty() && response.linked_etag != file.hash) {
            return MakeError(
                ErrorCode::kCorrupt,
                "{}: its content is {} according to the listing, but {} according to the server. "
                "Was it changed just now? Pull it again",
                file.path, file.hash, response.linked_etag);
        }
        if (response.status == 206) {
            WEFT_TRY(CheckRange(response));
        } else {
            if (response.content_length >= 0 &&
                static_cast<uint64_t>(response.content_length) != file.bytes) {
                return WrongSize(static_cast<uint64_t>(response.content_length));
            }
            if (ranged_) {
                job_.whole_ = job_.halt_ = true;
                return MakeError(ErrorCode::kUnsupported, "{}: Range is ignored", file.path);
            }
        }
        if (job_.note_.etag.empty()) job_.note_.etag = response.etag;
        // Where no hash will be computed, only the ETag identifies the content.
        if (job_.wanted_ != nullptr && !response.etag.empty() && response.etag != job_.note_.etag) {
            job_.changed_ = job_.halt_ = true;
            return MakeError(ErrorCode::kCorrupt, "{}: its ETag changed", file.path);
        }
        if (response.url != job_.url_) job_.direct_url_ = response.url;
        return {};
    }

    Status Data(std::span<const std::byte> bytes) override {
        if (bytes.size() > piece_.end - piece_.begin - buffer_.size()) {
            return MakeError(ErrorCode::kCorrupt, "{}: the server sent more bytes than requested",
                             job_.file_.path);
        }
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        const bool due = NowNs() - flushed_ns_ > kFlushMs * kNsPerMs;
        return due || buffer_.size() >= kFlushBytes ? Flush() : Status();
    }

    Status Flush() {
        for (size_t at = 0; at < buffer_.size();) {
            const ssize_t put = ::pwrite(job_.part_.fd(), buffer_.data() + at, buffer_.size() - at,
                                         static_cast<off_t>(piece_.begin + at));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return FileError(job_.part_.path(), "write");
            at += static_cast<size_t>(put);
        }
        const std::lock_guard lock(job_.mutex_);
        job_.note_.done.Add({piece_.begin, piece_.begin + buffer_.size()});
        job_.fetched_ += buffer_.size();
        piece_.begin += buffer_.size();
        buffer_.clear();
        flushed_ns_ = NowNs();
        return {};
    }

  private:
    Status CheckRange(const Response& response) {
        ByteRange range;
        uint64_t total = 0;
        const bool parsed = ParseContentRange(response.content_range, range, total);
        if (parsed && total != job_.file_.bytes) return WrongSize(total);
        if (!parsed || range.begin != piece_.begin || range.end > piece_.end) {
            return MakeError(
                ErrorCode::kCorrupt, "{}: requested bytes {} to {}, but the server sent '{}'",
                job_.file_.path, piece_.begin, piece_.end - 1, Shown(response.content_range));
        }
        return {};
    }

    Error WrongSize(uint64_t bytes) const {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {} bytes according to the listing, but {} according to the server. "
                         "Was it changed just now? Pull it again",
                         job_.file_.path, job_.file_.bytes, bytes);
    }

    Job& job_;
    ByteRange piece_;
    const bool ranged_;
    std::vector<std::byte> buffer_;
    int64_t flushed_ns_ = NowNs();
};

Status Job::Fetch(Connection& connection, ByteRange piece) {
    const uint64_t first = piece.begin;
    for (int failures = 0; !halt_;) {
        std::unique_lock lock(mutex_);
        const bool whole = whole_;
        const uint64_t before = note_.done.bytes();
        const int64_t wait_ms = (not_before_ns_ - NowNs()) / 1'000'000;
        lock.unlock();
        if (wait_ms > 0) {
            const Status paused = Pause(config_, wait_ms, &halt_);
            if (halt_) return {};
            WEFT_TRY(paused);
        }
        if (whole) piece.begin = first;
        const uint64_t begin = piece.begin;
        const bool ranged = !whole && (piece.begin > 0 || piece.end < file_.bytes);
        bool direct = false;
        const std::string url = CurrentUrl(direct);
        PieceSink sink(*this, piece, ranged);
        Outcome outcome =
            connection.Get(url, ranged ? std::optional(piece) : std::nullopt, sink, &halt_);
        WEFT_TRY(sink.Flush());
        piece.begin = sink.at();
        if (config_.Stopped()) return MakeError(ErrorCode::kCancelled, "stopped");
        if (halt_) return {};  // another thread failed, or found that Range is ignored
        if (piece.begin == piece.end) return {};
        if (!outcome.error) {
            outcome.error = MakeError(ErrorCode::kIo, "{}: ended early", file_.path);
            outcome.may_retry = true;
        }
        lock.lock();
        // From a server without ranges, the first bytes arrive again with each attempt and don't
        // count.
        const bool gained = whole ? note_.done.bytes() > before : piece.begin > begin;
        failures = gained ? 1 : failures + 1;
        lock.unlock();
        WEFT_TRY(Recover(outcome, direct, failures));
    }
    return {};
}

// Waits until the next attempt makes sense; returns an error if none does.
Status Job::Recover(Outcome& outcome, bool direct, int failures) {
    const int status = outcome.response.status;
    std::unique_lock lock(mutex_);
    if (direct && (status == 401 || status == 403 || status == 404 || status == 410)) {
        direct_url_.clear();  // its signature has expired
        outcome.may_retry = true;
    }
    if (!outcome.may_retry) return *outcome.error;
    last_trouble_ = outcome.error->message;
    const int64_t wait_ms = outcome.wait_ms >= 0 ? outcome.wait_ms : BackoffMs(failures);
    if (failures >= kMostFailures || wait_ms >= config_.timeout_ms) {
        return MakeError(
            outcome.error->code, "{}; given up after {} attempts{}. Downloaded data is kept",
            outcome.error->message, failures,
            outcome.wait_ms > 0
                ? fmt::format(" (the server asks to wait {} s; --timeout is {:.0f} s)",
                              wait_ms / 1000, static_cast<double>(config_.timeout_ms) * 1e-3)
                : std::string());
    }
    if (outcome.wait_ms > 0) {
        not_before_ns_ = std::max(not_before_ns_, NowNs() + wait_ms * 1'000'000);
    }
    lock.unlock();
    const Status paused = Pause(config_, wait_ms, &halt_);
    if (halt_) return {};
    return paused;
}

}  // namespace

Result<Downloaded> Download(const Config& config, const std::string& url, const RepoFile& file,
                            const std::string& part_path, const OnProgress& on_progress,
                            const RangeSet* wanted) {
    PartFile part(part_path, file);
    uint64_t fetched = 0;
    for (int start = 1;; ++start) {
        WEFT_ASSIGN(PartNote note, part.Open());
        const bool last = start == kMostStarts;
        Job job(config, url, file, part, wanted, on_progress);
        const Status run = job.Run(std::move(note));
        if (job.changed() && !last) {
            Log(LogLevel::kInfo,
                "{}: the file changed on the server during the download: starting over", file.path);
            part.Discard();
            continue;
        }
        if (!run.ok()) {
            if (run.error().code == ErrorCode::kCorrupt && wanted == nullptr) part.Discard();
            return run.error();
        }
        if (wanted != nullptr) {
            const Downloaded part_of = job.downloaded();
            if (!job.is_whole()) return part_of;
            fetched = part_of.fetched_bytes;  // this completed the file: now its hash can be
                                              // checked
            wanted = nullptr;
            continue;
        }
        const std::string hash = job.Hash();
        if (hash == file.hash) {
            WEFT_TRY(part.SyncAll());
            Downloaded all = job.downloaded();
            all.is_whole = true;
            all.fetched_bytes += fetched;
            all.resumed_bytes -= std::min(all.resumed_bytes, fetched);
            return all;
        }
        part.Discard();
        if (job.downloaded().resumed_bytes > 0 && !last) {
            Log(LogLevel::kInfo, "{}: the data from an earlier download was wrong: starting over",
                file.path);
            continue;
        }
        return MakeError(
            ErrorCode::kCorrupt,
            "{}: {} is {}; expected {} from the listing. The data was removed; pull it again. If "
            "the error persists, the server is at fault",
            file.path, file.large ? "its SHA-256" : "its git blob hash", hash, file.hash);
    }
}

}  // namespace weft::hub
