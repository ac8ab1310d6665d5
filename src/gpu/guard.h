// What the guard of kernels looks at (shaders/guard.glsl): a buffer of the device, the only
// descriptor that kernels have.
//
// Thread: as gpu/core.h.
#pragma once

#include "gpu/loader.h"

namespace weft::gpu {

struct Guard {
    static constexpr uint64_t kBytes = 256;

    VkDescriptorSetLayout layout = VK_NULL_HANDLE;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VkDescriptorSet set = VK_NULL_HANDLE;  // of the pool, goes with it

    // The name of the call that failed is in `call`.
    VkResult Create(const Calls& calls, VkDevice device, const char*& call);
    void PointAt(const Calls& calls, VkDevice device, VkBuffer buffer) const;
    void Destroy(const Calls& calls, VkDevice device);
};

}  // namespace weft::gpu
