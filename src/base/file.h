// Files: positional reads, and whole small files. Errors name the path.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

// While such an object exists, large reads of this thread (File::ReadAt) bypass the page cache
// where the file system can, so that they take no memory from others.
class DirectReads {
  public:
    DirectReads() { ++depth_; }
    ~DirectReads() { --depth_; }
    DirectReads(const DirectReads&) = delete;
    DirectReads& operator=(const DirectReads&) = delete;
    static bool on() { return depth_ > 0; }

  private:
    static thread_local int depth_;
};

// The identity of an open file, and the times that a change of the file changes.
struct FileStamp {
    uint64_t device = 0, inode = 0, size_bytes = 0;
    int64_t modified_ns = 0, changed_ns = 0;  // of the content; of the content or its description
    int64_t seen_ns = 0;                      // when the stamp was taken
    // Whether the content is the same, unless somebody set the time of its last change.
    bool SameContent(const FileStamp& other) const {
        return device == other.device && inode == other.inode && size_bytes == other.size_bytes &&
               modified_ns == other.modified_ns;
    }
};

// A file opened for reading. Owns the descriptor. ReadAt may be called from any thread.
class File {
  public:
    static Result<File> Open(const std::string& path);
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();

    const std::string& path() const { return path_; }
    uint64_t size_bytes() const { return size_bytes_; }
    // The stamp of this moment. Errors: kIo.
    Result<FileStamp> Stamp() const;
    // Fills all of `out` from byte `offset`. Errors: kIo; kCorrupt (the file is too short).
    Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
    // Reads pieces of piece_bytes bytes each into `out`, one after another, until `out` is full.
    // The first piece is at `offset`, and each next piece is `stride` bytes after the previous one
    // (such as columns of a matrix). Small pieces are copied from short-lived mappings, which is
    // several times faster than one system call per piece. Errors as ReadAt. The file's length is
    // checked before each mapping. If another process truncates the file while a piece is copied,
    // which takes microseconds, the process gets SIGBUS.
    Status ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                       std::span<std::byte> out) const;

  private:
    // Returns false if the file can't be mapped; then `out` is not filled.
    Result<bool> CopyThroughMapping(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                                    std::span<std::byte> out) const;
    // Returns false if the file system refuses direct reads of this file.
    Result<bool> ReadDirectly(uint64_t offset, std::span<std::byte> out) const;
    int DirectFd() const;
    Error CutShort(uint64_t offset, uint64_t needed) const;
    File(std::string path, int fd, uint64_t size)
        : path_(std::move(path)), fd_(fd), size_bytes_(size) {}
    std::string path_;
    int fd_ = -1;
    // A second descriptor of the same file, which the first direct read opens and which bypasses
    // the page cache. kUntried: no direct read yet. -1: the file system has no direct reads.
    static constexpr int kUntried = -2;
    mutable std::atomic<int> direct_fd_{kUntried};
    uint64_t size_bytes_ = 0;
};

// The whole file as text. Errors: kUnsupported if it has more than `most_bytes`.
Result<std::string> ReadTextFile(const std::string& path, uint64_t most_bytes = 1ull << 30);
// As ReadTextFile, but the path may also be a pipe, a device, or "-" for standard input, which is
// read to its end (blocking).
Result<std::string> ReadTextStream(const std::string& path, uint64_t most_bytes);
// As the function above, from an open descriptor, which stays open. name: the file's name in
// errors.
Result<std::string> ReadTextStream(int fd, const std::string& name, uint64_t most_bytes);
Status WriteFile(const std::string& path, std::span<const std::byte> bytes);

}  // namespace weft
