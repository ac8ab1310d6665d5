// A CSV file to which a run appends rows, robust against faults of the disk.
//
// Each line is appended with its own open, write and close. So a deleted file is created again with
// its head line, and logging continues when a missing folder exists again. Lines that can't be
// written wait (at most kMostWaitingBytes; the oldest are dropped first) and are written with a
// later line. A line is written whole or not at all, unless the process is killed during the write.
//
// Thread: one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace weft::train {

class LogFile {
  public:
    static constexpr size_t kMostWaitingBytes = 4 << 20;

    // head: the file's first line, with its line end.
    LogFile(std::string path, std::string head) : path_(std::move(path)), head_(std::move(head)) {}

    // Continues an existing file: keeps valid lines with ascending steps below `first_step`, and
    // removes a truncated last line, damaged lines and lines out of order. Returns the number of
    // damaged lines that have valid lines after them. Repairs a head line with at most two wrong
    // bytes. Errors: kUsage: another head line; kIo, kUnsupported (more than 1 GiB).
    Result<int64_t> GoOn(int64_t first_step);
    // Appends a line, which includes its line end. Errors: kIo with the path; the line then waits.
    Status Add(std::string_view line);
    const std::string& path() const { return path_; }
    // Number of waiting lines, and of lines dropped because too many waited.
    int64_t waiting() const { return waiting_lines_; }
    int64_t dropped() const { return dropped_; }

  private:
    Status Flush();

    std::string path_, head_, waiting_;
    int64_t waiting_lines_ = 0, dropped_ = 0;
};

// Appends all of `text` to an open file. After a failure, the file has its previous length. Returns
// 0, or errno.
int WriteAllOrNothing(int fd, std::string_view text);

}  // namespace weft::train
