// A large file that is there whole or not at all: written under another name (PATH.part), synced to
// the disk and renamed. Thrown away where that does not come to pass; only a kill leaves the part,
// which the next run replaces.
//
// Thread: WriteAt from any thread at the same time.
// Errors: kIo, with what to do where the disk is full; kUnsupported where a limit of file sizes is
// in the way; kDenied where PATH is there already, or
// another process writes it (which is seen where the file system knows locks, flock(2)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

// Bytes that may be written to the disk of `folder`. Errors: kIo.
Result<uint64_t> FreeBytes(const std::string& folder);

// Whether the disk of PATH has so many bytes left; else kIo, with both numbers.
Status CheckSpace(const std::string& path, uint64_t bytes);

// A name in the folder of PATH for a file that then replaces PATH by rename(2). No other thread,
// process or host has the same name: it ends with 64 random bits.
std::string FreshName(const std::string& path);

class OutputFile {
  public:
    // `bytes`: how large it will be; refused where the disk has less space. `replace`: a file of
    // that name is replaced in the end.
    static Result<OutputFile> Create(const std::string& path, uint64_t bytes, bool replace);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();  // without Finish: removes the part

    Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
    // Waits until these bytes are on the disk, and lets the system forget them: a file that nobody
    // reads soon takes no memory. A hint where the file system knows none of it.
    void Settle(uint64_t offset, uint64_t bytes);
    Status Finish();

  private:
    OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
    std::string PartPath() const { return path_ + ".part"; }
    std::string path_;
    int fd_;
};

}  // namespace weft
