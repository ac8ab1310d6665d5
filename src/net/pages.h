// Zeroed memory pages for a link's window. The kernel allocates a page on the first write to it.
// The destructor frees all pages.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "base/result.h"

namespace weft::net {

class Pages {
  public:
    // Errors: kOutOfMemory.
    static Result<Pages> Make(size_t bytes) {
        void* data =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) {
            return MakeError(ErrorCode::kOutOfMemory, "a window of {} bytes: {}", bytes,
                             std::strerror(errno));
        }
        return Pages(static_cast<std::byte*>(data), bytes);
    }
    Pages(Pages&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    Pages& operator=(Pages&&) = delete;
    ~Pages() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    std::span<std::byte> span() const { return {data_, bytes_}; }

  private:
    Pages(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
    std::byte* data_;
    size_t bytes_;
};

}  // namespace weft::net
