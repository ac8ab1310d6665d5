// Device memory: chooses a buffer's memory type, and owns its handles.
//
// Thread: any.
#pragma once

#include <memory>
#include <vector>

#include "gpu/vulkan/core.h"

namespace weft::gpu {

struct Memory : Buffer::Held {
    explicit Memory(std::shared_ptr<Core> of) : core(std::move(of)) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() override;
    std::shared_ptr<Core> core;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
};

// The Vulkan buffer of a buffer of this driver.
inline VkBuffer HandleOf(const Buffer& buffer) {
    return static_cast<const Memory*>(buffer.held())->buffer;
}

// The memory types for a place, best first, among those whose bit is set in `allowed`. On a
// discrete card, mapped device memory is used for kHost only if there is no other type, because it
// may be only 256 MiB.
std::vector<uint32_t> MemoryTypesFor(const VkPhysicalDeviceMemoryProperties& memory,
                                     uint32_t allowed, Place place, bool unified);

Result<Buffer> AllocateOn(std::shared_ptr<Core> core, uint64_t bytes, Place place);

}  // namespace weft::gpu
