// An instance of Vulkan, and what its devices are and have.
//
// Thread: one caller; the validation layer may add messages from any.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/features.h"
#include "gpu/loader.h"

namespace weft::gpu {

// What the validation layer said.
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
    // Null where no driver is installed. kUnsupported: `validate`, but there is no layer.
    static Result<std::unique_ptr<Instance>> Make(Loader loader, bool validate);
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance();  // logs the messages that nobody took

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

// One of them, with what device.h does not show.
struct Physical {
    VkPhysicalDevice handle = VK_NULL_HANDLE;
    Description description;
    uint32_t queue_family = 0;
    uint32_t timestamp_bits = 0;
    VkPhysicalDeviceMemoryProperties memory{};
    uint64_t most_buffer_bytes = 0;
    Extensions extensions;
    bool subgroup_control = false;  // a kernel may ask for its size of a subgroup
    bool full_subgroups = false;
    bool device_coherent = false;  // memory that AMD's caches leave alone may be asked for
    std::array<uint8_t, VK_UUID_SIZE> cache_uuid{};
};
Result<Physical> Describe(const Instance& instance, VkPhysicalDevice device, int index);
// As they are now; of `physical`, memory, extensions and description.unified are looked at.
std::vector<Heap> ReadHeaps(const Calls& calls, const Physical& physical);

// ListDevices and Device::Open with a loader other than the system's.
Result<std::vector<Description>> ListDevicesOf(Loader loader);
Result<std::shared_ptr<Device>> OpenDeviceOf(Loader loader, int index, const OpenOptions& options);

}  // namespace weft::gpu
