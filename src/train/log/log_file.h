// A text file of lines that a run adds to, whatever becomes of the disk meanwhile.
//
// Each line is added with an open, a write and a close of its own: a file that was removed is
// begun anew, with its head line, and a folder that was away may come back. What can't be written
// waits (at most kMostWaitingBytes; the oldest lines go first) and is written with a later line. A
// line is there whole or not at all, but for a kill in the middle of one.
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

    // head: the first line, with its end; empty: there is none.
    LogFile(std::string path, std::string head) : path_(std::move(path)), head_(std::move(head)) {}

    // An existing file is gone on with: lines of our own that come before `first_step`, in
    // ascending order, stay; a cut last line, damaged ones and what is in the way of order go.
    // Returns how many damaged lines went in front of good ones. A head in which at most two bytes
    // are wrong is mended. Errors: kUsage: another head; kIo, kUnsupported (more than 1 GiB).
    Result<int64_t> GoOn(int64_t first_step);
    // line: with its end. Errors: kIo with the path; the line waits.
    Status Add(std::string_view line);
    const std::string& path() const { return path_; }
    // Lines that wait, and that were given up since there were too many.
    int64_t waiting() const { return waiting_lines_; }
    int64_t dropped() const { return dropped_; }

  private:
    Status Flush();

    std::string path_, head_, waiting_;
    int64_t waiting_lines_ = 0, dropped_ = 0;
};

// All of `text` behind what is in an open file; after a failure the file ends where it did.
// Returns errno, or 0.
int WriteAllOrNothing(int fd, std::string_view text);

}  // namespace weft::train
