// A large output file that appears whole or not at all: it is written as PATH.part, synced to the
// disk and renamed. After an error, PATH.part is removed. If the process is killed, PATH.part
// stays, and the next run replaces it.
//
// Thread: WriteAt may be called from several threads at once.
// Errors: kIo (if the disk is full, the message states what to do); kUnsupported if a file size
// limit forbids the size; kDenied if PATH exists already, or if another process is writing it
// (detected if the file system supports flock(2)).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// Bytes that this process may still write to the disk of `folder`. Errors: kIo.
Result<uint64_t> FreeBytes(const std::string& folder);

// Errors: kIo if the disk of PATH has less than `bytes` free; the message has both sizes.
Status CheckSpace(const std::string& path, uint64_t bytes);

// Returns a name in the folder of PATH for a temporary file, which then replaces PATH by rename(2).
// The name ends with 64 random bits, so that no other thread, process or host uses the same one.
std::string FreshName(const std::string& path);

// Replaces a small file by `text`, so that a reader sees the old text or the new one: writes a file
// with a FreshName and renames it. Creates missing folders. sync: the text is on the disk
// afterwards. Errors: kIo, kUnsupported (a file size limit); the old file then stays.
Status ReplaceFile(const std::string& path, std::string_view text, mode_t mode = 0644,
                   bool sync = false);

class OutputFile {
  public:
    // bytes: the final size; it is an error if the disk has less free space. replace: Finish() may
    // replace an existing file PATH.
    static Result<OutputFile> Create(const std::string& path, uint64_t bytes, bool replace);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();  // removes PATH.part if Finish() was not called

    Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
    // Waits until these bytes are on the disk, then drops them from the page cache, because they
    // will not be read soon. A file system that does not support these operations ignores them.
    void Settle(uint64_t offset, uint64_t bytes);
    // Waits until everything is on the disk, so that Finish() only renames.
    Status Sync();
    Status Finish();
    const std::string& path() const { return path_; }

  private:
    OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
    std::string PartPath() const { return path_ + ".part"; }
    std::string path_;
    int fd_;
};

// Removes PATH.part if a killed process left it, but not if another process is writing it.
void RemoveLeftPart(const std::string& path);

// Finishes the files of one result. If a signal or a power cut stops this at any point, it leaves
// all old files, all new ones, or no file `files.back().path()`, without which nobody reads the
// others. stale: files of the old result that the new one lacks; they are removed.
Status FinishTogether(std::span<OutputFile> files, std::span<const std::string> stale);

}  // namespace weft
