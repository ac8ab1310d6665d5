// Takes the loader's place, as libvulkan.so.1 on LD_LIBRARY_PATH, so that a test can take the GPU
// away from one process of a job: WEFT_TEST_VULKAN names the real loader, WEFT_TEST_GPUS a folder.
// A file `lost.PID` in the folder makes the GPU of that process lost; `hangs.PID` makes it stop
// answering.
#include <dlfcn.h>
#include <unistd.h>
#include <vulkan/vulkan_core.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

PFN_vkGetInstanceProcAddr true_instance = nullptr;
PFN_vkGetDeviceProcAddr true_device = nullptr;
PFN_vkQueueSubmit true_submit = nullptr;
PFN_vkWaitSemaphores true_wait = nullptr;
PFN_vkGetSemaphoreCounterValue true_counter = nullptr;
PFN_vkDeviceWaitIdle true_idle = nullptr;
VkDevice opened = VK_NULL_HANDLE;
uint64_t done_before = 0;

bool Happened(const char* what) {
    static const char* const folder = std::getenv("WEFT_TEST_GPUS");
    if (folder == nullptr) return false;
    const std::string path = std::string(folder) + "/" + what + "." + std::to_string(::getpid());
    return ::access(path.c_str(), F_OK) == 0;
}

// A lost device runs nothing: objects destroyed after that are not in use.
VkResult Lose() {
    true_idle(opened);
    return VK_ERROR_DEVICE_LOST;
}

VKAPI_ATTR VkResult VKAPI_CALL Submit(VkQueue queue, uint32_t count, const VkSubmitInfo* infos,
                                      VkFence fence) {
    if (Happened("lost")) return Lose();
    return true_submit(queue, count, infos, fence);
}

VKAPI_ATTR VkResult VKAPI_CALL Wait(VkDevice device, const VkSemaphoreWaitInfo* info,
                                    uint64_t nanoseconds) {
    if (Happened("lost")) return Lose();
    if (!Happened("hangs")) return true_wait(device, info, nanoseconds);
    ::usleep(static_cast<useconds_t>(nanoseconds / 1000));
    return VK_TIMEOUT;
}

VKAPI_ATTR VkResult VKAPI_CALL Counter(VkDevice device, VkSemaphore semaphore, uint64_t* value) {
    // As on Mesa's drivers for AMD: work that a reset ended counts as done, and only waits report
    // the loss.
    if (Happened("lost")) true_idle(opened);
    const VkResult result = true_counter(device, semaphore, value);
    *value = done_before = Happened("hangs") ? done_before : *value;
    return result;
}

template <typename Function>
PFN_vkVoidFunction Instead(Function& place, PFN_vkVoidFunction found, Function mine) {
    place = reinterpret_cast<Function>(found);
    return found == nullptr ? nullptr : reinterpret_cast<PFN_vkVoidFunction>(mine);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL OfDevice(VkDevice device, const char* name) {
    const PFN_vkVoidFunction found = true_device(device, name);
    opened = device;
    true_idle = reinterpret_cast<PFN_vkDeviceWaitIdle>(true_device(device, "vkDeviceWaitIdle"));
    if (std::strcmp(name, "vkQueueSubmit") == 0) return Instead(true_submit, found, Submit);
    if (std::strcmp(name, "vkWaitSemaphores") == 0) return Instead(true_wait, found, Wait);
    if (std::strcmp(name, "vkGetSemaphoreCounterValue") == 0) {
        return Instead(true_counter, found, Counter);
    }
    return found;
}

}  // namespace

extern "C" VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                          const char* name) {
    if (true_instance == nullptr) {
        const char* path = std::getenv("WEFT_TEST_VULKAN");
        void* library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return nullptr;
        true_instance =
            reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(library, "vkGetInstanceProcAddr"));
    }
    const PFN_vkVoidFunction found = true_instance(instance, name);
    if (std::strcmp(name, "vkGetDeviceProcAddr") != 0) return found;
    return Instead(true_device, found, OfDevice);
}
