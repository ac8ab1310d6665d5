#include "memory.h"

#include <sys/mman.h>

#include <utility>

#include "backend/cpu/memory.h"
#include "base/check.h"

namespace weft::backend {
namespace {

thread_local strange::HiddenMemory* owner = nullptr;

}  // namespace

namespace strange {

HiddenMemory::Collects::Collects(HiddenMemory& memory) {
    owner = &memory;
}
HiddenMemory::Collects::~Collects() {
    owner = nullptr;
}

HiddenMemory::Opened::Opened(HiddenMemory& memory) : memory_(memory) {
    const std::scoped_lock lock(memory_.mutex_);
    if (memory_.opened_++ == 0) memory_.Protect(PROT_READ | PROT_WRITE);
}
HiddenMemory::Opened::~Opened() {
    const std::scoped_lock lock(memory_.mutex_);
    if (--memory_.opened_ == 0) memory_.Protect(PROT_NONE);
}

void HiddenMemory::Protect(int protection) const {
    for (const std::span<std::byte> range : ranges_) {
        WEFT_CHECK(::mprotect(range.data(), range.size(), protection) == 0);
    }
}

}  // namespace strange

Result<Memory> Memory::Allocate(int64_t bytes, const char* what) {
    Memory memory;
    if (bytes == 0) return memory;
    const auto size = static_cast<size_t>(bytes);
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return MakeError(ErrorCode::kOutOfMemory, "no {} bytes of memory for {}", bytes, what);
    }
    memory.data_ = static_cast<std::byte*>(data);
    memory.size_bytes_ = bytes;
    if (owner != nullptr) owner->Add({memory.data_, size});
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
