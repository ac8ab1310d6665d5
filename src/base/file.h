// Files: read-only mappings, positional reads and whole small files, with errors that name the
// path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

// A file opened for reading. Owns the descriptor. ReadAt may be called from any thread.
class File {
  public:
    static Result<File> Open(const std::string& path);
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();

    const std::string& path() const { return path_; }
    uint64_t size_bytes() const { return size_bytes_; }
    // Fills all of `out` from byte `offset`; kIo or kCorrupt (file too short) otherwise.
    Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
    // Gathers out.size() / piece_bytes pieces of `piece_bytes`, `stride` bytes apart, the first at
    // `offset`: columns of a matrix. Small pieces are copied out of short-lived mappings, which
    // is several times faster than a system call each. Errors as ReadAt. A file that is cut short
    // is seen before each mapping; one cut within the microseconds of a copy raises SIGBUS.
    Status ReadStrided(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                       std::span<std::byte> out) const;

  private:
    // False where the file can't be mapped; `out` is then not filled.
    Result<bool> CopyThroughMapping(uint64_t offset, uint64_t stride, uint64_t piece_bytes,
                                    std::span<std::byte> out) const;
    Error CutShort(uint64_t offset, uint64_t needed) const;
    File(std::string path, int fd, uint64_t size)
        : path_(std::move(path)), fd_(fd), size_bytes_(size) {}
    friend class MappedFile;
    std::string path_;
    int fd_ = -1;
    uint64_t size_bytes_ = 0;
};

// A whole file mapped read-only. A file cut short by others while mapped raises SIGBUS on access,
// so only headers are read through a long-lived mapping; bulk data goes through File::Read....
class MappedFile {
  public:
    static Result<MappedFile> Open(const std::string& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

  private:
    MappedFile(std::string path, const std::byte* data, size_t size)
        : path_(std::move(path)), data_(data), size_bytes_(size) {}
    std::string path_;
    const std::byte* data_ = nullptr;
    size_t size_bytes_ = 0;
};

// The whole file as text, at most `most_bytes` of it (kUnsupported beyond).
Result<std::string> ReadTextFile(const std::string& path, uint64_t most_bytes = 1ull << 30);
// The same of what need not be a file: a pipe or a device is read to its end, for which it waits.
Result<std::string> ReadTextStream(const std::string& path, uint64_t most_bytes);
// Of a descriptor, which stays open. name: what errors call it.
Result<std::string> ReadTextStream(int fd, const std::string& name, uint64_t most_bytes);
Status WriteFile(const std::string& path, std::span<const std::byte> bytes);

}  // namespace weft
