// One large anonymous mapping, which this object owns: memory for weights, KV pages or the arena.
// The operating system allocates zeroed pages at the first access, as huge pages if it has them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace weft::backend {

class Memory {
  public:
    Memory() = default;
    // Errors: kOutOfMemory (names `what` and the size).
    static Result<Memory> Allocate(int64_t bytes, const char* what);
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
