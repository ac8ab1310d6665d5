// What a device and all that it made share: the instance, the device, its queue and the count of
// submissions. Whoever goes last takes it away.
//
// Thread: Settled, Fail and lost from any; the rest from the caller of the Device.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gpu/guard.h"
#include "gpu/instance.h"

namespace weft::gpu {

struct Core {
    Core(std::unique_ptr<Instance> of, Physical which)
        : instance(std::move(of)), physical(std::move(which)), calls(instance->calls()) {}
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();
    Status Create();  // the device, its queue, semaphore and guard

    std::string Who() const;  // "gpu 0 (AMD Radeon 8060S)", for errors
    // The error of a call; remembers a lost device.
    Error Fail(std::string_view call, VkResult result);
    Status Check(std::string_view call, VkResult result) {
        if (result == VK_SUCCESS) return {};
        return Fail(call, result);
    }
    Status status() const;
    // How many submissions are done.
    Result<uint64_t> Done();
    // Before something goes that submissions may use: waits until those made so far are done, for a
    // bounded time. False: they are not, and what they use must be left to the driver.
    bool Settled();

    std::unique_ptr<Instance> instance;
    const Physical physical;
    Calls calls;
    VkDevice device = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
    VkSemaphore semaphore = VK_NULL_HANDLE;  // timeline: its value is the submissions done
    Guard guard;
    std::atomic<uint64_t> submitted{0}, done{0};
    std::atomic<bool> lost{false};       // a call said so
    std::atomic<bool> gone{false};       // and nothing of it runs any more
    std::atomic<bool> abandoned{false};  // something was left to the driver: so is the device
};

// A pipeline cache of a device, kept in a file where there is a folder.
class PipelineCache {
  public:
    explicit PipelineCache(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    PipelineCache(const PipelineCache&) = delete;
    PipelineCache& operator=(const PipelineCache&) = delete;
    ~PipelineCache();
    // Begins empty where the file is missing, of another driver, or damaged.
    Status Open(const std::string& folder);
    VkPipelineCache handle() const { return handle_; }
    void Grew() { grew_ = true; }
    void Save();  // where it grew; a failure is a warning

  private:
    std::shared_ptr<Core> core_;
    std::string path_;
    VkPipelineCache handle_ = VK_NULL_HANDLE;
    bool grew_ = false;
};

Result<std::unique_ptr<Kernel>> MakeKernelOn(std::shared_ptr<Core> core, PipelineCache& cache,
                                             const KernelCode& code);

struct KernelHandles {
    VkPipeline pipeline = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    uint32_t args_bytes = 0;
};
KernelHandles HandlesOf(const Kernel& kernel);

Result<std::unique_ptr<Commands>> RecordOn(std::shared_ptr<Core> core);
// Submits them as number `submission`.
Status SubmitOn(const Commands& commands, uint64_t submission);
std::vector<int64_t> TimesOf(const Commands& commands, uint32_t count);

}  // namespace weft::gpu
