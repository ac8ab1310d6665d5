// Vulkan functions, looked up by name in libvulkan.so.1, which is opened at the first use.
//
// Thread: any.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "base/result.h"

namespace weft::gpu {

// Three lists of functions: those that are looked up without an instance, in an instance, and in a
// device. A function of an extension is null if it is missing; all others are present.
#define WEFT_VK_GLOBAL(X)               \
    X(EnumerateInstanceVersion)         \
    X(EnumerateInstanceLayerProperties) \
    X(CreateInstance)
#define WEFT_VK_INSTANCE(X)                   \
    X(DestroyInstance)                        \
    X(EnumeratePhysicalDevices)               \
    X(EnumerateDeviceExtensionProperties)     \
    X(GetPhysicalDeviceProperties2)           \
    X(GetPhysicalDeviceFeatures2)             \
    X(GetPhysicalDeviceMemoryProperties2)     \
    X(GetPhysicalDeviceQueueFamilyProperties) \
    X(CreateDevice)                           \
    X(GetDeviceProcAddr)
#define WEFT_VK_INSTANCE_EXTENSION(X) \
    X(CreateDebugUtilsMessengerEXT)   \
    X(DestroyDebugUtilsMessengerEXT)
#define WEFT_VK_DEVICE(X)          \
    X(DestroyDevice)               \
    X(GetDeviceQueue)              \
    X(QueueSubmit)                 \
    X(CreateSemaphore)             \
    X(DestroySemaphore)            \
    X(GetSemaphoreCounterValue)    \
    X(WaitSemaphores)              \
    X(CreateBuffer)                \
    X(DestroyBuffer)               \
    X(GetBufferMemoryRequirements) \
    X(GetBufferDeviceAddress)      \
    X(AllocateMemory)              \
    X(FreeMemory)                  \
    X(BindBufferMemory)            \
    X(MapMemory)                   \
    X(CreateShaderModule)          \
    X(DestroyShaderModule)         \
    X(CreateDescriptorSetLayout)   \
    X(DestroyDescriptorSetLayout)  \
    X(CreateDescriptorPool)        \
    X(DestroyDescriptorPool)       \
    X(AllocateDescriptorSets)      \
    X(UpdateDescriptorSets)        \
    X(CreatePipelineLayout)        \
    X(DestroyPipelineLayout)       \
    X(CreatePipelineCache)         \
    X(DestroyPipelineCache)        \
    X(GetPipelineCacheData)        \
    X(CreateComputePipelines)      \
    X(DestroyPipeline)             \
    X(CreateCommandPool)           \
    X(DestroyCommandPool)          \
    X(AllocateCommandBuffers)      \
    X(BeginCommandBuffer)          \
    X(EndCommandBuffer)            \
    X(CmdBindPipeline)             \
    X(CmdBindDescriptorSets)       \
    X(CmdPushConstants)            \
    X(CmdDispatchBase)             \
    X(CmdCopyBuffer)               \
    X(CmdFillBuffer)               \
    X(CmdPipelineBarrier)          \
    X(CreateQueryPool)             \
    X(DestroyQueryPool)            \
    X(GetQueryPoolResults)         \
    X(CmdResetQueryPool)           \
    X(CmdWriteTimestamp)

struct Calls {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;
#define WEFT_VK_MEMBER(name) PFN_vk##name name = nullptr;
    WEFT_VK_GLOBAL(WEFT_VK_MEMBER)
    WEFT_VK_INSTANCE(WEFT_VK_MEMBER)
    WEFT_VK_INSTANCE_EXTENSION(WEFT_VK_MEMBER)
    WEFT_VK_DEVICE(WEFT_VK_MEMBER)
#undef WEFT_VK_MEMBER
};

struct Loader {
    PFN_vkGetInstanceProcAddr get = nullptr;
};
// Opens the system's libvulkan.so.1, which then stays open. Errors: kUnsupported if it can't be
// opened; the message names the package to install.
Result<Loader> SystemLoader();

// These look up the three lists of functions. Errors: kUnsupported (a function is missing; the
// message names it).
Status FindGlobalCalls(Calls& calls);
Status FindInstanceCalls(Calls& calls, VkInstance instance);
Status FindDeviceCalls(Calls& calls, VkDevice device);

// "VK_ERROR_OUT_OF_DEVICE_MEMORY", or the number.
std::string ResultName(VkResult result);
// Returns an error whose message has the call and its result. The code is kOutOfMemory, kPeerLost
// (for VK_ERROR_DEVICE_LOST) or kIo.
Error CallError(std::string_view who, std::string_view call, VkResult result);

}  // namespace weft::gpu
