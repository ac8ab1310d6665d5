// State that a device and all objects made from it share: the instance, the device, its queue and
// the count of submissions. The state is destroyed with the last of these objects.
//
// Thread: any thread may call Settled and Fail and read `lost`; only the caller of the Device may
// use the rest.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gpu/vulkan/guard.h"
#include "gpu/vulkan/instance.h"

namespace weft::gpu {

struct Core {
    Core(std::unique_ptr<Instance> of, Physical which)
        : instance(std::move(of)), physical(std::move(which)), calls(instance->calls()) {}
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;
    ~Core();
    Status Create();  // creates the device, its queue, semaphore and guard

    std::string Who() const;  // "gpu 0 (AMD Radeon 8060S)", for errors
    // Returns the error of a failed call. Sets `lost` if the result is that the device was lost.
    Error Fail(std::string_view call, VkResult result);
    Status Check(std::string_view call, VkResult result) {
        if (result == VK_SUCCESS) return {};
        return Fail(call, result);
    }
    Status status() const;
    // The number of completed submissions.
    Result<uint64_t> Done();
    // Called before an object that submissions up to `last` may use is destroyed. Waits, for a
    // limited time, until these are done. Returns false if they are not done; then the object must
    // be leaked. Without an argument: all submissions so far.
    bool Settled(uint64_t last);
    bool Settled() { return Settled(submitted); }

    std::unique_ptr<Instance> instance;
    const Physical physical;
    Calls calls;
    VkDevice device = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
    VkSemaphore semaphore = VK_NULL_HANDLE;  // timeline: its value is the number of completed
                                             // submissions
    Guard guard;
    std::atomic<uint64_t> submitted{0}, done{0};
    // The last number given to vkQueueSubmit, set before the call: the work may end before the call
    // returns.
    std::atomic<uint64_t> given{0};
    std::atomic<bool> lost{false};       // a call returned VK_ERROR_DEVICE_LOST
    std::atomic<bool> gone{false};       // the device is lost, and nothing runs on it any more
    std::atomic<bool> abandoned{false};  // some object was leaked, so the device must be leaked,
                                         // too
};

// A device's pipeline cache. Open() is given a folder for its file, or "" for no file.
class PipelineCache {
  public:
    explicit PipelineCache(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    PipelineCache(const PipelineCache&) = delete;
    PipelineCache& operator=(const PipelineCache&) = delete;
    ~PipelineCache();
    // The cache starts empty if the file is missing, damaged, or from another driver.
    Status Open(const std::string& folder);
    VkPipelineCache handle() const { return handle_; }
    void Grew() { grew_ = true; }
    // Writes the file if the cache grew; a failure is a warning. SaveIfDue does so at most so often
    // that writing takes a twentieth of the time.
    void Save();
    void SaveIfDue();

  private:
    std::shared_ptr<Core> core_;
    std::string path_;
    VkPipelineCache handle_ = VK_NULL_HANDLE;
    bool grew_ = false;
    std::atomic<bool> told_{false};  // of a failure
    int64_t due_ns_ = 0;             // time of the next SaveIfDue that may write
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
// Submits the commands as number `submission`.
Status SubmitOn(const Commands& commands, uint64_t submission);
std::vector<int64_t> TimesOf(const Commands& commands, uint32_t count);

}  // namespace weft::gpu
