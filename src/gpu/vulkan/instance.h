// A Vulkan instance, and the properties of its devices.
//
// Thread: one caller; the validation layer may add messages from any thread.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/vulkan/features.h"
#include "gpu/vulkan/loader.h"
#include "gpu/vulkan/small_halves.h"

namespace weft::gpu {

// Messages of the validation layer.
class Messages {
  public:
    void Add(std::string message);
    std::vector<std::string> Take();

  private:
    std::mutex mutex_;
    std::vector<std::string> messages_;
};

class Instance {
  public:
    // Returns null if no driver is installed. Errors: kUnsupported if `validate` is set and the
    // layer is missing.
    static Result<std::unique_ptr<Instance>> Make(Loader loader, bool validate);
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance();  // logs the messages that were not taken out

    const Calls& calls() const { return calls_; }
    VkInstance handle() const { return handle_; }
    Messages& messages() { return messages_; }
    Result<std::vector<VkPhysicalDevice>> Devices() const;

  private:
    Instance() = default;
    Status Create(bool validate);
    Calls calls_;
    VkInstance handle_ = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
    Messages messages_;
    bool none_ = false;  // no driver
};

// A device, with properties that device.h does not expose.
struct Physical {
    VkPhysicalDevice handle = VK_NULL_HANDLE;
    Description description;
    uint32_t queue_family = 0;
    uint32_t timestamp_bits = 0;
    VkPhysicalDeviceMemoryProperties memory{};
    uint64_t most_buffer_bytes = 0;
    Extensions extensions;
    bool subgroup_control = false;  // a kernel may request its subgroup size
    bool full_subgroups = false;
    SmallHalves small_halves = SmallHalves::kNo;
    bool device_coherent = false;  // memory that the caches of AMD's GPUs bypass may be allocated
    std::array<uint8_t, VK_UUID_SIZE> cache_uuid{};
};
Result<Physical> Describe(const Instance& instance, VkPhysicalDevice device, int index);
// The heaps with their current values. Reads only memory, extensions and description.unified of
// `physical`.
std::vector<Heap> ReadHeaps(const Calls& calls, const Physical& physical);

// ListDevices and Device::Open with a given loader instead of the system's.
Result<std::vector<Description>> ListDevicesOf(Loader loader);
Result<std::shared_ptr<Device>> OpenDeviceOf(Loader loader, int index, const OpenOptions& options);

}  // namespace weft::gpu
