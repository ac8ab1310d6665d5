#include "gpu/vulkan/loader.h"

#include <dlfcn.h>

#include <utility>

namespace weft::gpu {
namespace {

constexpr const char* kLibrary = "libvulkan.so.1";

Error Missing(const char* name) {
    return MakeError(ErrorCode::kUnsupported,
                     "Vulkan: the loader or driver has no vk{}; Vulkan 1.2 is needed: install a "
                     "newer libvulkan1 and driver",
                     name);
}

constexpr std::pair<VkResult, const char*> kResults[] = {
    {VK_NOT_READY, "VK_NOT_READY"},
    {VK_TIMEOUT, "VK_TIMEOUT"},
    {VK_INCOMPLETE, "VK_INCOMPLETE"},
    {VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY"},
    {VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY"},
    {VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED"},
    {VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST"},
    {VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED"},
    {VK_ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT"},
    {VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT"},
    {VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT"},
    {VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER"},
    {VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS"},
    {VK_ERROR_FRAGMENTED_POOL, "VK_ERROR_FRAGMENTED_POOL"},
    {VK_ERROR_UNKNOWN, "VK_ERROR_UNKNOWN"},
    {VK_ERROR_INVALID_EXTERNAL_HANDLE, "VK_ERROR_INVALID_EXTERNAL_HANDLE"},
    {VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS, "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS"},
    {VK_ERROR_NOT_PERMITTED_EXT, "VK_ERROR_NOT_PERMITTED"},
};

}  // namespace

Result<Loader> SystemLoader() {
    void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* why = ::dlerror();
        return MakeError(ErrorCode::kUnsupported,
                         "Vulkan: {} can't be opened ({}). Install the Vulkan loader: libvulkan1 "
                         "(Debian, Ubuntu), vulkan-loader (Fedora), vulkan-icd-loader (Arch)",
                         kLibrary, why != nullptr ? why : "no reason given");
    }
    auto found =
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
    if (found == nullptr) return Missing("GetInstanceProcAddr");
    return Loader{found};
}

#define WEFT_VK_FIND_GLOBAL(name)                                                              \
    calls.name =                                                                               \
        reinterpret_cast<PFN_vk##name>(calls.GetInstanceProcAddr(VK_NULL_HANDLE, "vk" #name)); \
    if (calls.name == nullptr) return Missing(#name);
#define WEFT_VK_FIND_EXTENSION(name) \
    calls.name = reinterpret_cast<PFN_vk##name>(calls.GetInstanceProcAddr(instance, "vk" #name));
#define WEFT_VK_FIND_INSTANCE(name) \
    WEFT_VK_FIND_EXTENSION(name)    \
    if (calls.name == nullptr) return Missing(#name);
#define WEFT_VK_FIND_DEVICE(name)                                                             \
    calls.name = reinterpret_cast<PFN_vk##name>(calls.GetDeviceProcAddr(device, "vk" #name)); \
    if (calls.name == nullptr) return Missing(#name);

Status FindGlobalCalls(Calls& calls) {
    WEFT_VK_GLOBAL(WEFT_VK_FIND_GLOBAL)
    return {};
}

Status FindInstanceCalls(Calls& calls, VkInstance instance) {
    WEFT_VK_INSTANCE(WEFT_VK_FIND_INSTANCE)
    WEFT_VK_INSTANCE_EXTENSION(WEFT_VK_FIND_EXTENSION)
    return {};
}

Status FindDeviceCalls(Calls& calls, VkDevice device) {
    WEFT_VK_DEVICE(WEFT_VK_FIND_DEVICE)
    return {};
}

std::string ResultName(VkResult result) {
    for (const auto& [value, name] : kResults) {
        if (value == result) return name;
    }
    return fmt::format("VkResult {}", static_cast<int>(result));
}

Error CallError(std::string_view who, std::string_view call, VkResult result) {
    if (result == VK_ERROR_DEVICE_LOST) {
        return MakeError(ErrorCode::kPeerLost,
                         "{}: the device is lost ({}): its driver reset it, for example because a "
                         "GPU kernel ran too long. The system log (dmesg) has the reason; start "
                         "Weft again",
                         who, call);
    }
    const bool memory =
        result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return MakeError(memory ? ErrorCode::kOutOfMemory : ErrorCode::kIo, "{}: {} failed: {}", who,
                     call, ResultName(result));
}

}  // namespace weft::gpu
