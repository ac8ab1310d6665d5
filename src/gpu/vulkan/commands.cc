// Recordings, their submissions and timestamps.
#include <vector>

#include "gpu/vulkan/memory.h"

namespace weft::gpu {
namespace {

constexpr VkAccessFlags kAnyWrite = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
constexpr VkAccessFlags kAnyRead = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT;
constexpr VkPipelineStageFlags kWorkStages =
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;

class CommandsOfCore : public Commands {
  public:
    explicit CommandsOfCore(std::shared_ptr<Core> core) : core_(std::move(core)) {}
    CommandsOfCore(const CommandsOfCore&) = delete;
    CommandsOfCore& operator=(const CommandsOfCore&) = delete;
    ~CommandsOfCore() override {
        if (!core_->Settled(submission_)) return;
        if (queries_ != VK_NULL_HANDLE)
            core_->calls.DestroyQueryPool(core_->device, queries_, nullptr);
        if (pool_ != VK_NULL_HANDLE) core_->calls.DestroyCommandPool(core_->device, pool_, nullptr);
    }
    Status Begin();

    using Commands::Run;
    void Run(const Kernel& kernel, std::span<const std::byte> args,
             const WorkgroupCounts& groups) override {
        const KernelHandles handles = HandlesOf(kernel);
        WEFT_CHECK(!ended_ && args.size() == handles.args_bytes);
        const Description& device = core_->physical.description;
        if (Status fits = CheckGroups(device, core_->Who(), groups); !fits.ok()) {
            failed_ = std::move(fits);
            return;
        }
        if (handles.pipeline != bound_) {
            core_->calls.CmdBindPipeline(buffer_, VK_PIPELINE_BIND_POINT_COMPUTE, handles.pipeline);
            // Bound again for each kernel: layouts with other push constants are not compatible.
            core_->calls.CmdBindDescriptorSets(buffer_, VK_PIPELINE_BIND_POINT_COMPUTE,
                                               handles.layout, 0, 1, &core_->guard.set, 0, nullptr);
            bound_ = handles.pipeline;
        }
        if (!args.empty()) {
            core_->calls.CmdPushConstants(buffer_, handles.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                          handles.args_bytes, args.data());
        }
        const auto &count = groups.count, &first = groups.first;
        core_->calls.CmdDispatchBase(buffer_, first[0], first[1], first[2], count[0], count[1],
                                     count[2]);
    }

    void Copy(const Buffer& from, uint64_t from_byte, const Buffer& to, uint64_t to_byte,
              uint64_t bytes) override {
        WEFT_CHECK(!ended_ && from_byte + bytes <= from.size_bytes() &&
                   to_byte + bytes <= to.size_bytes());
        if (bytes == 0) return;
        const VkBufferCopy region{from_byte, to_byte, bytes};
        core_->calls.CmdCopyBuffer(buffer_, HandleOf(from), HandleOf(to), 1, &region);
    }

    void Fill(const Buffer& buffer, uint64_t byte, uint64_t bytes, uint32_t word) override {
        WEFT_CHECK(!ended_ && byte % 4 == 0 && bytes % 4 == 0 &&
                   byte + bytes <= buffer.size_bytes());
        if (bytes == 0) return;
        core_->calls.CmdFillBuffer(buffer_, HandleOf(buffer), byte, bytes, word);
    }

    void Barrier() override { Pipe(kWorkStages, kWorkStages, kAnyRead | kAnyWrite); }
    void Time(uint32_t i) override;
    Status End() override;

    Status Submit(uint64_t submission);
    std::vector<int64_t> Times(uint32_t count) const;

  private:
    void Pipe(VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags seen_by) {
        VkMemoryBarrier memory{};
        memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
        memory.srcAccessMask = kAnyWrite;
        memory.dstAccessMask = seen_by;
        core_->calls.CmdPipelineBarrier(buffer_, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
    }
    std::shared_ptr<Core> core_;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkCommandBuffer buffer_ = VK_NULL_HANDLE;
    VkQueryPool queries_ = VK_NULL_HANDLE;
    VkPipeline bound_ = VK_NULL_HANDLE;
    uint32_t times_ = 0;  // number of recorded timestamps: 0 to times_ - 1
    uint64_t submission_ = 0;
    Status failed_;
    bool ended_ = false;
};

Status CommandsOfCore::Begin() {
    VkCommandPoolCreateInfo pool_info{};
    pool_info.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pool_info.queueFamilyIndex = core_->physical.queue_family;
    const VkResult result =
        core_->calls.CreateCommandPool(core_->device, &pool_info, nullptr, &pool_);
    if (result != VK_SUCCESS) {
        pool_ = VK_NULL_HANDLE;
        return core_->Fail("vkCreateCommandPool", result);
    }
    VkCommandBufferAllocateInfo buffer_info{};
    buffer_info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    buffer_info.commandPool = pool_;
    buffer_info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    buffer_info.commandBufferCount = 1;
    WEFT_TRY(core_->Check("vkAllocateCommandBuffers", core_->calls.AllocateCommandBuffers(
                                                          core_->device, &buffer_info, &buffer_)));
    VkCommandBufferBeginInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    WEFT_TRY(core_->Check("vkBeginCommandBuffer", core_->calls.BeginCommandBuffer(buffer_, &info)));
    Barrier();  // earlier submissions are done, and their writes visible
    return {};
}

void CommandsOfCore::Time(uint32_t i) {
    WEFT_CHECK(!ended_ && i < kMostTimes);
    if (core_->physical.timestamp_bits == 0 || !failed_.ok()) return;
    if (queries_ == VK_NULL_HANDLE) {
        VkQueryPoolCreateInfo info{};
        info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
        info.queryType = VK_QUERY_TYPE_TIMESTAMP;
        info.queryCount = kMostTimes;
        const VkResult result =
            core_->calls.CreateQueryPool(core_->device, &info, nullptr, &queries_);
        if (result != VK_SUCCESS) {
            queries_ = VK_NULL_HANDLE;
            failed_ = core_->Fail("vkCreateQueryPool", result);
            return;
        }
        core_->calls.CmdResetQueryPool(buffer_, queries_, 0, kMostTimes);
    }
    core_->calls.CmdWriteTimestamp(buffer_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, i);
    times_ = std::max(times_, i + 1);
}

Status CommandsOfCore::End() {
    WEFT_CHECK(!ended_);
    WEFT_TRY(failed_);
    Pipe(kWorkStages, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    WEFT_TRY(core_->Check("vkEndCommandBuffer", core_->calls.EndCommandBuffer(buffer_)));
    ended_ = true;
    return {};
}

Status CommandsOfCore::Submit(uint64_t submission) {
    WEFT_CHECK(ended_ && submission_ <= core_->done);  // otherwise it may still be running
    VkTimelineSemaphoreSubmitInfo timeline{};
    timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
    timeline.signalSemaphoreValueCount = 1;
    timeline.pSignalSemaphoreValues = &submission;
    VkSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
    info.pNext = &timeline;
    info.commandBufferCount = 1;
    info.pCommandBuffers = &buffer_;
    info.signalSemaphoreCount = 1;
    info.pSignalSemaphores = &core_->semaphore;
    core_->given = submission;
    WEFT_TRY(core_->Check("vkQueueSubmit",
                          core_->calls.QueueSubmit(core_->queue, 1, &info, VK_NULL_HANDLE)));
    submission_ = submission;
    return {};
}

std::vector<int64_t> CommandsOfCore::Times(uint32_t count) const {
    if (count == 0 || count > times_ || submission_ == 0 || submission_ > core_->done) return {};
    std::vector<uint64_t> ticks(count);
    const VkResult result = core_->calls.GetQueryPoolResults(
        core_->device, queries_, 0, count, ticks.size() * sizeof ticks[0], ticks.data(),
        sizeof ticks[0], VK_QUERY_RESULT_64_BIT);
    if (result == VK_ERROR_DEVICE_LOST) core_->lost = true;
    if (result != VK_SUCCESS) return {};
    const uint32_t bits = core_->physical.timestamp_bits;
    const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    std::vector<int64_t> times;
    for (const uint64_t tick : ticks) {
        times.push_back(static_cast<int64_t>(static_cast<double>((tick - ticks[0]) & mask) *
                                             core_->physical.description.timestamp_ns));
    }
    return times;
}

}  // namespace

Result<std::unique_ptr<Commands>> RecordOn(std::shared_ptr<Core> core) {
    auto commands = std::make_unique<CommandsOfCore>(std::move(core));
    WEFT_TRY(commands->Begin());
    return std::unique_ptr<Commands>(std::move(commands));
}

Status SubmitOn(const Commands& commands, uint64_t submission) {
    // Only the record of submissions changes, not the commands.
    auto& own = const_cast<CommandsOfCore&>(static_cast<const CommandsOfCore&>(commands));
    return own.Submit(submission);
}

std::vector<int64_t> TimesOf(const Commands& commands, uint32_t count) {
    return static_cast<const CommandsOfCore&>(commands).Times(count);
}

}  // namespace weft::gpu
