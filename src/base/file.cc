#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/confine.h"
#include "base/dangling_link.h"

namespace weft {
namespace {

Error IoError(const std::string& path, const char* what) {
    const int error = errno;
    const std::string link = error == ENOENT ? DanglingLink(path) : "";
    if (!link.empty()) return MakeError(ErrorCode::kIo, "{} {}", path, link);
    const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return MakeError(code, "{}: cannot {}: {}", path, what, std::strerror(error));
}

}  // namespace

Result<File> File::Open(const std::string& path) {
    // O_NONBLOCK: opening a pipe without a writer would wait forever. It has no effect on files.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return IoError(path, "open for reading");
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd);
        return MakeError(ErrorCode::kIo, "{}: not a regular file", path);
    }
    if (Status allowed = CheckOpened(fd, path); !allowed.ok()) {
        ::close(fd);
        return allowed.error();
    }
    return File(path, fd, static_cast<uint64_t>(info.st_size));
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      direct_fd_(other.direct_fd_.exchange(kUntried)),
      size_bytes_(other.size_bytes_) {}

File& File::operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    direct_fd_ = other.direct_fd_.exchange(direct_fd_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

File::~File() {
    if (fd_ >= 0) ::close(fd_);
    if (direct_fd_ >= 0) ::close(direct_fd_);
}

Result<FileStamp> File::Stamp() const {
    struct stat found {};
    if (::fstat(fd_, &found) != 0) return IoError(path_, "stat");
    const auto ns = [](const timespec& time) {
        return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    };
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);  // the clock of the files' times
    return FileStamp{found.st_dev,      found.st_ino,      static_cast<uint64_t>(found.st_size),
                     ns(found.st_mtim), ns(found.st_ctim), ns(now)};
}

thread_local int DirectReads::depth_ = 0;

// Several threads may open it at once; all but one close theirs.
int File::DirectFd() const {
    int known = direct_fd_.load();
    if (known != kUntried) return known;
    // (By number: the path may be another file by now.)
    const std::string path = "/proc/self/fd/" + std::to_string(fd_);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (direct_fd_.compare_exchange_strong(known, std::max(fd, -1))) return std::max(fd, -1);
    if (fd >= 0) ::close(fd);
    return known;
}

// Direct reads begin, end and land at multiples of kUnit.
Result<bool> File::ReadDirectly(uint64_t offset, std::span<std::byte> out) const {
    constexpr uint64_t kUnit = 4096, kMost = 1 << 20;
    struct Free {
        void operator()(std::byte* data) const { std::free(data); }
    };
    static thread_local std::unique_ptr<std::byte, Free> buffer(
        static_cast<std::byte*>(std::aligned_alloc(kUnit, kMost + 2 * kUnit)));
    while (!out.empty()) {
        const uint64_t begin = offset / kUnit * kUnit, skip = offset - begin;
        const uint64_t wanted = std::min<uint64_t>(out.size(), kMost);
        const uint64_t length = (skip + wanted + kUnit - 1) / kUnit * kUnit;
        const ssize_t got = ::pread(DirectFd(), buffer.get(), length, static_cast<off_t>(begin));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EINVAL) return false;  // some open such a file, but do not read it
        if (got < 0) return IoError(path_, "read");
        if (static_cast<uint64_t>(got) <= skip) return CutShort(offset, out.size());
        const uint64_t usable = std::min(static_cast<uint64_t>(got) - skip, wanted);
        std::memcpy(out.data(), buffer.get() + skip, usable);
        out = out.subspan(usable);
        offset += usable;
    }
    return true;
}

Status File::ReadAt(uint64_t offset, std::span<std::byte> out) const {
    constexpr size_t kLarge = 64 << 10;
    const bool direct = DirectReads::on() && out.size() >= kLarge;
    if (direct && DirectFd() >= 0) {
        WEFT_ASSIGN(const bool read, ReadDirectly(offset, out));
        if (read) return {};
    }
    const uint64_t begin = offset, length = out.size();
    while (!out.empty()) {
        const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return IoError(path_, "read");
        if (got == 0) return CutShort(offset, out.size());
        out = out.subspan(static_cast<size_t>(got));
        offset += static_cast<uint64_t>(got);
    }
    // If the file system has no direct reads, the pages are dropped from the page cache.
    if (direct) {
        ::posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(length),
                        POSIX_FADV_DONTNEED);
    }
    return {};
}

Error File::CutShort(uint64_t offset, uint64_t needed) const {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: ends at byte {}, but {} more bytes were expected there. Is the "
                     "download complete?",
                     path_, offset, needed);
}

Status File::ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                         std::span<std::byte> out) const {
    if (out.empty()) return {};
    WEFT_CHECK(piece_bytes > 0 && piece_bytes <= stride && out.size() % piece_bytes == 0);
    constexpr uint64_t kLargePiece = 16 << 10;  // pieces of this size are read one by one
    constexpr uint64_t kWindowBytes = 4 << 20;
    const uint64_t count = out.size() / piece_bytes;
    const uint64_t at_once = std::max<uint64_t>(1, kWindowBytes / stride);
    bool mappable = piece_bytes < kLargePiece;
    for (uint64_t i = 0; i < count; i += at_once) {
        const uint64_t now = std::min(at_once, count - i);
        const std::span<std::byte> part = out.subspan(i * piece_bytes, now * piece_bytes);
        const uint64_t begin = offset + i * stride;
        if (mappable) {
            WEFT_ASSIGN(mappable, CopyThroughMapping(begin, stride, piece_bytes, part));
        }
        for (uint64_t p = 0; p < now && !mappable; ++p) {
            WEFT_TRY(ReadAt(begin + p * stride, part.subspan(p * piece_bytes, piece_bytes)));
        }
    }
    return {};
}

Result<bool> File::CopyThroughMapping(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                                      std::span<std::byte> out) const {
    const uint64_t count = out.size() / piece_bytes;
    const uint64_t end = offset + (count - 1) * stride + piece_bytes;
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return IoError(path_, "stat");
    const auto size = static_cast<uint64_t>(info.st_size);
    if (end > size) return CutShort(size, end - size);
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t begin = offset / page * page;
    void* map = ::mmap(nullptr, end - begin, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd_,
                       static_cast<off_t>(begin));
    if (map == MAP_FAILED) return false;
    const auto* from = static_cast<const std::byte*>(map) + (offset - begin);
    for (uint64_t i = 0; i < count; ++i) {
        std::memcpy(out.data() + i * piece_bytes, from + i * stride, piece_bytes);
    }
    ::munmap(map, end - begin);
    return true;
}

Result<std::string> ReadTextFile(const std::string& path, uint64_t most_bytes) {
    WEFT_ASSIGN(File file, File::Open(path));
    if (file.size_bytes() > most_bytes) {
        return MakeError(ErrorCode::kUnsupported, "{}: the file has {} bytes; expected at most {}",
                         path, file.size_bytes(), most_bytes);
    }
    std::string text(file.size_bytes(), '\0');
    WEFT_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
    return text;
}

Result<std::string> ReadTextStream(int fd, const std::string& name, uint64_t most_bytes) {
    std::string text;
    std::vector<char> buffer(64 << 10);
    for (;;) {
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return IoError(name, "read");
        if (got == 0) return text;
        if (static_cast<uint64_t>(got) > most_bytes - text.size()) {
            return MakeError(ErrorCode::kUnsupported, "{}: more than {} bytes; expected at most {}",
                             name, most_bytes, most_bytes);
        }
        text.append(buffer.data(), static_cast<size_t>(got));
    }
}

Result<std::string> ReadTextStream(const std::string& path, uint64_t most_bytes) {
    if (path == "-") return ReadTextStream(STDIN_FILENO, "standard input", most_bytes);
    int fd = -1;
    do {
        fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return IoError(path, "open for reading");
    Result<std::string> text = ReadTextStream(fd, path, most_bytes);
    ::close(fd);
    return text;
}

Status WriteFile(const std::string& path, std::span<const std::byte> bytes) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return IoError(path, "open for writing");
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            Error error = IoError(path, "write");
            ::close(fd);
            return error;
        }
        bytes = bytes.subspan(static_cast<size_t>(put));
    }
    if (::close(fd) != 0) return IoError(path, "close after writing");
    return {};
}

}  // namespace weft
