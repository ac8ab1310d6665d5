#include "backend/cpu/memory.h"

#include <cerrno>
#include <cstring>

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
    // Without huge pages, kernels are a few percent slower.
    ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_bytes_ = bytes;
    return memory;
}

}  // namespace weft::backend
