// Lists devices, and opens one.
#include <utility>

#include "gpu/drivers.h"
#include "gpu/vulkan/memory.h"

namespace weft::gpu {
namespace {

constexpr int64_t kPollNs = 50'000;        // a decode step's kernels end within this time, or take
                                           // much longer
constexpr int64_t kSliceNs = 100'000'000;  // of one wait in the driver

class DeviceOfCore : public Device {
  public:
    explicit DeviceOfCore(std::shared_ptr<Core> core) : core_(std::move(core)), cache_(core_) {}
    Status Begin(const OpenOptions& options) {
        WEFT_ASSIGN(stop_word_, AllocateOn(core_, Guard::kBytes, Place::kDevice));
        core_->guard.PointAt(core_->calls, core_->device, HandleOf(stop_word_));
        return cache_.Open(options.cache_folder);
    }

    const Description& description() const override { return core_->physical.description; }
    std::vector<Heap> heaps() const override { return ReadHeaps(core_->calls, core_->physical); }
    Result<Buffer> Allocate(uint64_t bytes, Place place) override {
        WEFT_TRY(status());
        return AllocateOn(core_, bytes, place);
    }
    uint64_t most_buffer_bytes() const override { return core_->physical.most_buffer_bytes; }
    const Buffer& stop_word() const override { return stop_word_; }
    Result<std::unique_ptr<Kernel>> MakeKernel(const KernelCode& code) override {
        WEFT_TRY(status());
        return MakeKernelOn(core_, cache_, code);
    }
    Result<std::unique_ptr<Commands>> Record() override {
        WEFT_TRY(status());
        return RecordOn(core_);
    }
    Result<uint64_t> Submit(const Commands& commands) override {
        WEFT_TRY(status());
        const uint64_t submission = core_->submitted + 1;
        WEFT_TRY(SubmitOn(commands, submission));
        core_->submitted = submission;
        return submission;
    }
    Status Wait(uint64_t submission, Deadline deadline) override;
    std::vector<int64_t> Times(const Commands& commands, uint32_t count) override {
        return TimesOf(commands, count);
    }
    Status status() const override { return core_->status(); }

  private:
    Result<bool> WaitSlice(uint64_t submission, int64_t slice_ns);
    Status CheckMessages();
    std::shared_ptr<Core> core_;
    PipelineCache cache_;
    Buffer stop_word_;
};

Result<bool> DeviceOfCore::WaitSlice(uint64_t submission, int64_t slice_ns) {
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pSemaphores = &core_->semaphore;
    info.pValues = &submission;
    const VkResult result =
        core_->calls.WaitSemaphores(core_->device, &info, static_cast<uint64_t>(slice_ns));
    if (result != VK_SUCCESS && result != VK_TIMEOUT)
        return core_->Fail("vkWaitSemaphores", result);
    WEFT_ASSIGN(const uint64_t done, core_->Done());
    return done >= submission;
}

Status DeviceOfCore::Wait(uint64_t submission, Deadline deadline) {
    WEFT_TRY(status());
    WEFT_CHECK(submission <= core_->submitted);
    // While the device works: a process that is killed keeps its kernels.
    if (deadline.length_ms() > 0) cache_.SaveIfDue();
    const int64_t begin_ns = NowNs();
    bool over = core_->done >= submission;
    while (!over) {
        WEFT_ASSIGN(const uint64_t done, core_->Done());
        if (done >= submission) {
            // After a reset, a counter may never reach its value; some drivers detect resets only
            // in waits.
            WEFT_ASSIGN(over, WaitSlice(submission, 0));
            break;
        }
        const int64_t now_ns = NowNs();
        if (now_ns >= deadline.at_ns()) {
            return MakeError(ErrorCode::kTimeout,
                             "{}: submission {} is not done within {} ms ({} of {} are done); it "
                             "continues",
                             core_->Who(), submission, deadline.length_ms(), done,
                             core_->submitted.load());
        }
        if (now_ns - begin_ns < kPollNs) continue;
        WEFT_ASSIGN(over, WaitSlice(submission, std::min(kSliceNs, deadline.at_ns() - now_ns)));
    }
    return CheckMessages();
}

Status DeviceOfCore::CheckMessages() {
    const std::vector<std::string> messages = core_->instance->messages().Take();
    if (messages.empty()) return {};
    return MakeError(ErrorCode::kIo, "{}: the validation layer has {} messages; the first: {}",
                     core_->Who(), messages.size(), messages[0]);
}

Result<std::vector<Physical>> DescribeAll(const Instance* instance) {
    std::vector<Physical> all;
    if (instance == nullptr) return all;
    WEFT_ASSIGN(const std::vector<VkPhysicalDevice> devices, instance->Devices());
    for (size_t i = 0; i < devices.size(); ++i) {
        WEFT_ASSIGN(Physical one, Describe(*instance, devices[i], static_cast<int>(i)));
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace

Result<std::vector<Description>> ListDevicesOf(Loader loader) {
    WEFT_ASSIGN(const std::unique_ptr<Instance> instance, Instance::Make(loader, false));
    WEFT_ASSIGN(const std::vector<Physical> all, DescribeAll(instance.get()));
    std::vector<Description> descriptions;
    for (const Physical& one : all) descriptions.push_back(one.description);
    return descriptions;
}

Result<std::shared_ptr<Device>> OpenDeviceOf(Loader loader, int index, const OpenOptions& options) {
    WEFT_ASSIGN(std::unique_ptr<Instance> instance, Instance::Make(loader, options.validate));
    WEFT_ASSIGN(std::vector<Physical> all, DescribeAll(instance.get()));
    if (index < 0 || static_cast<size_t>(index) >= all.size()) {
        return MakeError(ErrorCode::kNotFound,
                         "Vulkan: gpu {} does not exist: the loader lists {} devices. 'weft "
                         "inspect --devices' shows them; a driver may be missing "
                         "(mesa-vulkan-drivers), or permission for /dev/dri/renderD*",
                         index, all.size());
    }
    Physical& physical = all[static_cast<size_t>(index)];
    const Description& description = physical.description;
    if (!description.unusable.empty()) {
        return MakeError(ErrorCode::kUnsupported, "gpu {} ({}, {}) can't be used: {}", index,
                         description.name, description.driver, description.unusable);
    }
    auto core = std::make_shared<Core>(std::move(instance), std::move(physical));
    WEFT_TRY(core->Create());
    auto device = std::make_shared<DeviceOfCore>(std::move(core));
    WEFT_TRY(device->Begin(options));
    return std::shared_ptr<Device>(std::move(device));
}

}  // namespace weft::gpu

namespace weft::gpu::vulkan {

Result<std::vector<Description>> ListDevices() {
    WEFT_ASSIGN(const Loader loader, SystemLoader());
    return ListDevicesOf(loader);
}

Result<std::shared_ptr<Device>> OpenDevice(int index, const OpenOptions& options) {
    WEFT_ASSIGN(const Loader loader, SystemLoader());
    return OpenDeviceOf(loader, index, options);
}

}  // namespace weft::gpu::vulkan
