// A large output file that appears whole or not at all: it is written as PATH.part, synced to the
// disk and renamed. On an error the part is removed; after a kill it stays, and the next run
// replaces it.
//
// Thread: WriteAt may be called from several threads at once.
// Errors: kIo (for a full disk, with the next step); kUnsupported if a file size limit forbids the
// size; kDenied if PATH exists already, or if another process is writing it (detected where the
// file system supports locks, flock(2)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace weft {

// Bytes that this process may still write to the disk of `folder`. Errors: kIo.
Result<uint64_t> FreeBytes(const std::string& folder);

// Errors: kIo, with both numbers, if the disk of PATH has less than `bytes` free.
Status CheckSpace(const std::string& path, uint64_t bytes);

// A temporary name in the folder of PATH, for a file that then replaces PATH by rename(2). It ends
// with 64 random bits, so that no other thread, process or host has the same name.
std::string FreshName(const std::string& path);

class OutputFile {
  public:
    // bytes: the final size; refused if the disk has less free space. replace: Finish may replace
    // an existing file of that name.
    static Result<OutputFile> Create(const std::string& path, uint64_t bytes, bool replace);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();  // without Finish: removes the part

    Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
    // Waits until these bytes are on the disk, then drops them from the page cache, since they will
    // not be read soon. Does nothing on file systems that support neither.
    void Settle(uint64_t offset, uint64_t bytes);
    Status Finish();

  private:
    OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
    std::string PartPath() const { return path_ + ".part"; }
    std::string path_;
    int fd_;
};

}  // namespace weft
