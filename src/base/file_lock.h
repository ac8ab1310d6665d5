// A lock for a small file that several processes read, change and replace (ReplaceFile): without
// the lock, one process could overwrite the change of another.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace weft {

// Locks an open file (flock(2)) until its descriptors are closed. name: the file's name, for
// errors. Errors: kIo; kTimeout: another process has held the lock for wait_ms.
Status LockOpenFile(int fd, const std::string& name, int64_t wait_ms);

// Holds the lock of `path` until it is destroyed: a lock on PATH.lock, which is created with its
// folder, and stays.
class FileLock {
  public:
    // On a file system without locks, the lock excludes nobody. Errors: kIo, kTimeout.
    static Result<FileLock> Take(const std::string& path, int64_t wait_ms = 10'000);

  private:
    explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
    Fd fd_;
};

}  // namespace weft
