// A Vulkan loader in front of the real one: it counts calls, and makes one of them return an error
// instead of calling the driver. It also counts objects that were created and not destroyed.
//
//     FailAt(SystemLoader()->get, 17, VK_ERROR_DEVICE_LOST);
//     ... OpenDeviceOf(Loader{FindOfInstance}, index, {}) ...   // vk_faults has the outcome
//
// Thread: one.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "gpu/vulkan/instance.h"
#include "support/wait.h"

namespace weft::test {

// Global state, because Vulkan calls are plain functions without a context argument.
struct Faults {
    PFN_vkGetInstanceProcAddr true_instance = nullptr;
    PFN_vkGetDeviceProcAddr true_device = nullptr;
    int fail_at = -1;  // index of the call that fails; -1: none
    VkResult with = VK_ERROR_UNKNOWN;
    std::string hidden;  // name of a function that the loader does not find
    int calls = 0;
    std::string last;
    std::string failed;               // name of the call that failed
    int alive = 0;                    // objects created and not destroyed
    std::vector<std::string> names;   // names of the calls that could have failed
    bool discrete = false;            // devices report the type of a discrete GPU
    bool hangs = false;               // no further submission completes
    uint64_t done = 0;                // submissions completed before `hangs` was set
    std::function<void()> on_submit;  // called before a successful vkQueueSubmit returns
};
inline Faults vk_faults;

inline bool IsOne(const char* name, const char* begin) {
    return std::strncmp(name, begin, std::strlen(begin)) == 0;
}

// The number of polls in a wait depends on the machine, so only the first of consecutive polls
// counts.
inline bool IsPoll(const char* name) {
    const bool again = vk_faults.last == name && vk_faults.last == "vkGetSemaphoreCounterValue";
    vk_faults.last = name;
    return again;
}

template <typename Tag, typename Function>
struct Wrap;
template <typename Tag, typename... Types>
struct Wrap<Tag, VkResult(VKAPI_PTR*)(Types...)> {
    static inline VkResult(VKAPI_PTR* real)(Types...) = nullptr;
    static VKAPI_ATTR VkResult VKAPI_CALL Call(Types... args) {
        constexpr bool kAsks = std::string_view(Tag::kName) == "vkGetSemaphoreCounterValue";
        if constexpr (kAsks) {
            const VkResult asked = CountedCall(args...);
            uint64_t& value = *std::get<2>(std::tie(args...));
            if (asked == VK_SUCCESS)
                value = vk_faults.done = vk_faults.hangs ? vk_faults.done : value;
            return asked;
        }
        if (vk_faults.hangs && std::string_view(Tag::kName) == "vkWaitSemaphores") {
            test::Pace(20'000).Next();
            return VK_TIMEOUT;
        }
        return CountedCall(args...);
    }
    static VkResult CountedCall(Types... args) {
        if (IsPoll(Tag::kName)) return real(args...);
        vk_faults.names.emplace_back(Tag::kName);
        if (vk_faults.calls++ == vk_faults.fail_at) {
            vk_faults.failed = Tag::kName;
            return vk_faults.with;
        }
        const VkResult result = real(args...);
        const bool submitted = std::string_view(Tag::kName) == "vkQueueSubmit";
        if (submitted && result == VK_SUCCESS && vk_faults.on_submit) vk_faults.on_submit();
        const bool made = IsOne(Tag::kName, "vkCreate") || IsOne(Tag::kName, "vkAllocateMemory");
        if (made && result == VK_SUCCESS) ++vk_faults.alive;
        return result;
    }
};
template <typename Tag, typename... Types>
struct Wrap<Tag, void(VKAPI_PTR*)(Types...)> {
    static inline void(VKAPI_PTR* real)(Types...) = nullptr;
    static VKAPI_ATTR void VKAPI_CALL Call(Types... args) {
        if (IsOne(Tag::kName, "vkDestroy") || IsOne(Tag::kName, "vkFreeMemory")) --vk_faults.alive;
        real(args...);
        if constexpr (std::string_view(Tag::kName) == "vkGetPhysicalDeviceProperties2") {
            VkPhysicalDeviceProperties& found = std::get<1>(std::tie(args...))->properties;
            if (vk_faults.discrete) found.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
        }
    }
};

template <typename Tag, typename Result, typename... Types>
struct Wrap<Tag, Result(VKAPI_PTR*)(Types...)> {  // a function that cannot fail
    static inline Result(VKAPI_PTR* real)(Types...) = nullptr;
    static VKAPI_ATTR Result VKAPI_CALL Call(Types... args) { return real(args...); }
};

#define WEFT_TEST_TAG(one)                              \
    struct Tag##one {                                   \
        static constexpr const char* kName = "vk" #one; \
    };
WEFT_VK_GLOBAL(WEFT_TEST_TAG)
WEFT_VK_INSTANCE(WEFT_TEST_TAG)
WEFT_VK_DEVICE(WEFT_TEST_TAG)

inline PFN_vkVoidFunction Substitute(const char* name, PFN_vkVoidFunction found) {
    if (found == nullptr || vk_faults.hidden == name) return nullptr;
#define WEFT_TEST_WRAP(one)                                         \
    if (std::strcmp(name, "vk" #one) == 0) {                        \
        using Wrapped = Wrap<Tag##one, PFN_vk##one>;                \
        Wrapped::real = reinterpret_cast<PFN_vk##one>(found);       \
        return reinterpret_cast<PFN_vkVoidFunction>(Wrapped::Call); \
    }
    WEFT_VK_GLOBAL(WEFT_TEST_WRAP)
    WEFT_VK_INSTANCE(WEFT_TEST_WRAP)
    WEFT_VK_DEVICE(WEFT_TEST_WRAP)
    return found;
}

inline PFN_vkVoidFunction VKAPI_CALL FindOfDevice(VkDevice device, const char* name) {
    return Substitute(name, vk_faults.true_device(device, name));
}

inline PFN_vkVoidFunction VKAPI_CALL FindOfInstance(VkInstance instance, const char* name) {
    PFN_vkVoidFunction found = vk_faults.true_instance(instance, name);
    if (std::strcmp(name, "vkGetDeviceProcAddr") == 0 && vk_faults.hidden != name) {
        vk_faults.true_device = reinterpret_cast<PFN_vkGetDeviceProcAddr>(found);
        return reinterpret_cast<PFN_vkVoidFunction>(FindOfDevice);
    }
    return Substitute(name, found);
}

// The Weft error code for a Vulkan result.
inline ErrorCode CodeOf(VkResult result) {
    if (result == VK_ERROR_DEVICE_LOST) return ErrorCode::kPeerLost;
    return result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY
               ? ErrorCode::kOutOfMemory
               : ErrorCode::kIo;
}

inline void FailAt(PFN_vkGetInstanceProcAddr loader, int call, VkResult with,
                   const std::string& hidden = "") {
    vk_faults = Faults{};
    vk_faults.true_instance = loader;
    vk_faults.fail_at = call;
    vk_faults.with = with;
    vk_faults.hidden = hidden;
}

}  // namespace weft::test
