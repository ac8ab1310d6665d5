// The descriptor of the buffer that guarded kernels check (shaders/guard.glsl). Kernels have no
// other descriptor.
//
// Thread: as gpu/vulkan/core.h.
#pragma once

#include "gpu/vulkan/loader.h"

namespace weft::gpu {

struct Guard {
    static constexpr uint64_t kBytes = 256;

    VkDescriptorSetLayout layout = VK_NULL_HANDLE;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VkDescriptorSet set = VK_NULL_HANDLE;  // freed with the pool

    // On failure, `call` receives the name of the failed call.
    VkResult Create(const Calls& calls, VkDevice device, const char*& call);
    void PointAt(const Calls& calls, VkDevice device, VkBuffer buffer) const;
    void Destroy(const Calls& calls, VkDevice device);
};

}  // namespace weft::gpu
