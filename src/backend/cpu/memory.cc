#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weft::backend {

Result<Memory> Memory::Allocate(int64_t bytes, const char* what) {
    Memory memory;
    if (bytes == 0) return memory;
    void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return MakeError(ErrorCode::kOutOfMemory, "no {} bytes of memory for {}: {}", bytes, what,
                         std::strerror(errno));
    }
    // Without huge pages everything works, a few per cent slower.
    ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_bytes_ = bytes;
    return memory;
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

Memory::~Memory() {
    if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_bytes_));
}

}  // namespace weft::backend
