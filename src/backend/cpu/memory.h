// One large mapping, which this object owns: memory for weights, KV pages or the arena. The
// operating system allocates zeroed pages at the first access, as huge pages if it has them. Or a
// mapping of a file, whose pages the operating system writes to a drive and reads back.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace weft::backend {

class Memory {
  public:
    Memory() = default;
    // Errors: kOutOfMemory (names `what` and the size).
    static Result<Memory> Allocate(int64_t bytes, const char* what);
    // The memory is an unnamed file in `folder`, whose blocks are allocated at once. It begins as
    // zeros, and disappears when the process ends. An access after an I/O error of the drive ends
    // the process (SIGBUS). Errors: kIo (names the folder; also: its disk has too little space);
    // kUsage (the folder's files are in memory).
    static Result<Memory> OnDrive(const std::string& folder, int64_t bytes, const char* what);
    Memory(Memory&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_bytes_, other.size_bytes_);
        return *this;
    }
    ~Memory() {
        if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_bytes_));
    }

    std::byte* data() const { return data_; }
    int64_t size_bytes() const { return size_bytes_; }

  private:
    std::byte* data_ = nullptr;
    int64_t size_bytes_ = 0;
};

}  // namespace weft::backend
