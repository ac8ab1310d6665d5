#include "memory.h"

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

Result<Memory> Memory::OnDrive(const std::string& folder, int64_t, const char*) {
    return MakeError(ErrorCode::kUnsupported, "{}: this device has no files", folder);
}

}  // namespace weft::backend
