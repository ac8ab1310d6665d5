#include "gpu/vulkan/core.h"

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/log.h"

namespace weft::gpu {
namespace {

constexpr int64_t kSettleMs = 60'000;
constexpr uint64_t kSettleSliceNs = 100'000'000;

// Mesa writes its shader cache in a thread of the lowest priority. A killed process keeps its
// memory and connections until each of its threads has run once more, which takes such a thread
// seconds while other programs use all cores. So the driver's threads are raised to normal
// priority, where the system permits it (for root, or by RLIMIT_NICE).
void LiftThreadsOfDriver() {
    const int usual = ::getpriority(PRIO_PROCESS, 0);
    std::error_code error;
    std::filesystem::directory_iterator task("/proc/self/task", error);
    for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
        const std::string name = task->path().filename();
        const auto id = static_cast<id_t>(std::strtoul(name.c_str(), nullptr, 10));
        if (::getpriority(PRIO_PROCESS, id) <= usual) continue;
        static_cast<void>(::setpriority(PRIO_PROCESS, id, usual));
    }
}

}  // namespace

Status Core::Create() {
    const std::vector<const char*> names = physical.extensions.Names();
    Features has(physical.extensions);
    calls.GetPhysicalDeviceFeatures2(physical.handle, &has.base);
    Features used(physical.extensions);
    used.Choose(has);
    const float priority = 1;
    VkDeviceQueueCreateInfo queue_info{};
    queue_info.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue_info.queueFamilyIndex = physical.queue_family;
    queue_info.queueCount = 1;
    queue_info.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &used.base;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue_info;
    info.enabledExtensionCount = static_cast<uint32_t>(names.size());
    info.ppEnabledExtensionNames = names.data();
    VkResult result = calls.CreateDevice(physical.handle, &info, nullptr, &device);
    if (result != VK_SUCCESS) {
        device = VK_NULL_HANDLE;
        return Fail("vkCreateDevice", result);
    }
    WEFT_TRY(FindDeviceCalls(calls, device));
    calls.GetDeviceQueue(device, physical.queue_family, 0, &queue);
    VkSemaphoreTypeCreateInfo timeline{};
    timeline.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    timeline.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphore_info{};
    semaphore_info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    semaphore_info.pNext = &timeline;
    result = calls.CreateSemaphore(device, &semaphore_info, nullptr, &semaphore);
    if (result != VK_SUCCESS) {
        semaphore = VK_NULL_HANDLE;
        return Fail("vkCreateSemaphore", result);
    }
    LiftThreadsOfDriver();
    const char* call = "";
    result = guard.Create(calls, device, call);
    return Check(call, result);
}

Core::~Core() {
    if (!Settled() || abandoned) {
        // A kernel is still running: leaking its resources is better than destroying them.
        static_cast<void>(instance.release());
        return;
    }
    guard.Destroy(calls, device);
    if (semaphore != VK_NULL_HANDLE) calls.DestroySemaphore(device, semaphore, nullptr);
    if (device == VK_NULL_HANDLE) return;
    auto destroy = calls.DestroyDevice;
    if (destroy == nullptr) {  // FindDeviceCalls failed before it
        destroy = reinterpret_cast<PFN_vkDestroyDevice>(
            calls.GetDeviceProcAddr(device, "vkDestroyDevice"));
    }
    if (destroy != nullptr) destroy(device, nullptr);
}

std::string Core::Who() const {
    return fmt::format("gpu {} ({})", physical.description.index, physical.description.name);
}

Error Core::Fail(std::string_view call, VkResult result) {
    if (result == VK_ERROR_DEVICE_LOST) lost = true;
    return CallError(Who(), call, result);
}

Status Core::status() const {
    if (!lost) return {};
    return CallError(Who(), "an earlier call", VK_ERROR_DEVICE_LOST);
}

Result<uint64_t> Core::Done() {
    uint64_t value = 0;
    WEFT_TRY(Check("vkGetSemaphoreCounterValue",
                   calls.GetSemaphoreCounterValue(device, semaphore, &value)));
    // Some drivers report a lost device by a counter value that was never signaled.
    if (value > given) return Fail("vkGetSemaphoreCounterValue", VK_ERROR_DEVICE_LOST);
    uint64_t before = done;
    while (before < value && !done.compare_exchange_weak(before, value)) {
    }
    return value;
}

bool Core::Settled(uint64_t last) {
    if (gone || done >= last) return true;
    const Deadline deadline = Deadline::In(kSettleMs);
    int losses = 0;  // a lost device runs nothing; checked twice, since the next step can't be
                     // undone
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore;
    info.pValues = &last;
    while (!abandoned && losses < 2 && !deadline.expired()) {
        VkResult result = calls.WaitSemaphores(device, &info, kSettleSliceNs);
        if (result == VK_TIMEOUT) continue;
        if (result == VK_SUCCESS) {
            const Result<uint64_t> value = Done();
            if (value.ok() && *value >= last) return true;
            if (!value.ok() && value.error().code == ErrorCode::kPeerLost)
                result = VK_ERROR_DEVICE_LOST;
        }
        if (result == VK_ERROR_DEVICE_LOST) {
            lost = true;
            ++losses;
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    if (losses == 2) {
        gone = true;
        return true;
    }
    if (!abandoned.exchange(true)) {
        Log(LogLevel::kWarning, "{}: a submission is not done after {} ms; its memory is not freed",
            Who(), kSettleMs);
    }
    return false;
}

}  // namespace weft::gpu
