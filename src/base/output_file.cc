#include "base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/confine.h"
#include "base/hash.h"
#include "base/large_file.h"

namespace weft {
namespace {

std::string FolderOf(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

Error WriteError(const std::string& path, const char* what, int error) {
    const bool full = error == ENOSPC || error == EDQUOT;
    const bool large = error == EFBIG;
    // (A limit of file sizes is permanent: retrying does not help.)
    const ErrorCode code = large ? ErrorCode::kUnsupported : ErrorCode::kIo;
    return MakeError(code, "{}: cannot {}: {}{}", path, what, std::strerror(error),
                     full    ? ". The partial file was removed; free some space, or write to "
                               "another disk"
                     : large ? LargeFileAdvice()
                             : "");
}

Status SyncFolderOf(const std::string& path) {
    const int folder = ::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return WriteError(FolderOf(path), "open it", errno);
    // (Some network file systems neither support nor need fsync of a folder.)
    const int failed = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
    ::close(folder);
    if (failed != 0) return WriteError(FolderOf(path), "write it to the disk", failed);
    return {};
}

}  // namespace

std::string FreshName(const std::string& path) {
    std::array<uint8_t, 8> bits{};
    RandomBytes(std::as_writable_bytes(std::span(bits)));
    return path + "." + Hex(bits) + ".tmp";
}

Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode, bool sync) {
    std::error_code failed;
    std::filesystem::create_directories(FolderOf(path), failed);
    if (failed) return WriteError(path, "make its folder", failed.value());
    const std::string fresh = FreshName(path);
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    int error = fd < 0 ? errno : 0;
    while (error == 0 && !text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put > 0) text.remove_prefix(static_cast<size_t>(put));
        if (put < 0 && errno != EINTR) error = errno;
    }
    if (error == 0 && sync && ::fsync(fd) != 0) error = errno;
    if (fd >= 0 && ::close(fd) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return {};
    ::unlink(fresh.c_str());
    return WriteError(path, "write the file", error);
}

Result<uint64_t> FreeBytes(const std::string& folder) {
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) == 0) {
        return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
    }
    return MakeError(ErrorCode::kIo, "{}: cannot read the free space of its disk: {}", folder,
                     std::strerror(errno));
}

Status CheckSpace(const std::string& path, uint64_t bytes) {
    const auto room = FreeBytes(FolderOf(path));
    if (!room.ok()) {
        return MakeError(room.error().code, "{}: {}", path, room.error().message);
    }
    const uint64_t free = *room;
    if (free >= bytes) return {};
    return MakeError(ErrorCode::kIo,
                     "{}: the disk is too full: {} are needed and {} are free. Free "
                     "some space, or write to another disk",
                     path, BytesText(bytes), BytesText(free));
}

Result<OutputFile> OutputFile::Create(const std::string& path, uint64_t bytes, bool replace) {
    WEFT_TRY(CheckConfined(path));
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) {
        if (!S_ISREG(info.st_mode)) {
            return MakeError(ErrorCode::kDenied, "{}: exists and is not a regular file", path);
        }
        if (!replace) {
            return MakeError(ErrorCode::kDenied, "{}: exists already; --force replaces it", path);
        }
    }
    const std::string part = path + ".part";
    const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) return WriteError(part, "open for writing", errno);
    if (Status allowed = CheckOpened(fd, part); !allowed.ok()) {
        ::close(fd);
        return allowed.error();
    }
    // (On a file system without locks, other writers can't be detected.)
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(fd);
        return MakeError(ErrorCode::kDenied, "{}: another process is writing it", part);
    }
    // The file's previous writer may have renamed it between our open and our lock.
    struct stat opened {
    }, named{};
    if (::fstat(fd, &opened) != 0 || ::stat(part.c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
        ::close(fd);
        return MakeError(ErrorCode::kDenied,
                         "{}: another process has just finished {}; use --force to replace it",
                         part, path);
    }
    OutputFile file(path, fd);
    if (::ftruncate(fd, 0) != 0) return WriteError(part, "empty it", errno);
    WEFT_TRY(CheckSpace(path, bytes));  // (without files of a killed process)
    // Reserve the space now, so that it can't run out later. Not every file system supports this.
    const int reserved = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    if (reserved != 0 && reserved != EOPNOTSUPP && reserved != ENOSYS && reserved != EINTR) {
        return WriteError(part, "reserve its space", reserved);
    }
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        return WriteError(part, "set its size", errno);
    }
    return file;
}

void RemoveLeftPart(const std::string& path) {
    const std::string part = path + ".part";
    const int fd = ::open(part.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(part.c_str());
    ::close(fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
    if (fd_ < 0) return;
    ::unlink(PartPath().c_str());
    ::close(fd_);
}

Status OutputFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
    const uint64_t begin = offset;
    const size_t size = bytes.size();
    while (!bytes.empty()) {
        const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return WriteError(PartPath(), "write", errno);
        bytes = bytes.subspan(static_cast<size_t>(put));
        offset += static_cast<uint64_t>(put);
    }
    // Start writing to the disk now, so that the final sync is short. Only a hint.
    ::sync_file_range(fd_, static_cast<off_t>(begin), static_cast<off_t>(size),
                      SYNC_FILE_RANGE_WRITE);
    return {};
}

void OutputFile::Settle(uint64_t offset, uint64_t bytes) {
    const auto begin = static_cast<off_t>(offset), size = static_cast<off_t>(bytes);
    ::sync_file_range(
        fd_, begin, size,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    ::posix_fadvise(fd_, begin, size, POSIX_FADV_DONTNEED);
}

Status OutputFile::Sync() {
    if (::fsync(fd_) != 0) return WriteError(PartPath(), "write it to the disk", errno);
    // (Some network file systems report a full disk only when the file is closed.)
    const int fd = ::dup(fd_);
    if (fd < 0 || ::close(fd) != 0) return WriteError(PartPath(), "close it", errno);
    return {};
}

Status OutputFile::Finish() {
    WEFT_TRY(Sync());
    if (::rename(PartPath().c_str(), path_.c_str()) != 0) {
        return WriteError(path_, "rename the finished file to it", errno);
    }
    ::close(std::exchange(fd_, -1));
    return SyncFolderOf(path_);
}

Status FinishTogether(std::span<OutputFile> files, std::span<const std::string> stale) {
    for (OutputFile& file : files) WEFT_TRY(file.Sync());
    const std::string& last = files.back().path();
    const auto remove = [](const std::string& path) -> Status {
        if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
        return WriteError(path, "remove the old file", errno);
    };
    WEFT_TRY(remove(last));
    WEFT_TRY(SyncFolderOf(last));
    for (const std::string& path : stale) WEFT_TRY(remove(path));
    for (OutputFile& file : files) WEFT_TRY(file.Finish());
    return {};
}

}  // namespace weft
