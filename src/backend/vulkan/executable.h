// The executable of a program on a Vulkan device: executable.cc has its memory and its steps,
// stages.cc what happens within a step.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/transfer.h"
#include "backend/vulkan/backoff.h"
#include "backend/vulkan/compile.h"
#include "backend/vulkan/fuse.h"
#include "backend/vulkan/lowering.h"
#include "backend/vulkan/op_times.h"
#include "backend/vulkan/reading.h"
#include "backend/vulkan/recordings.h"
#include "backend/vulkan/step_tables.h"
#include "backend/vulkan/upload.h"
#include "backend/vulkan/vulkan_device.h"

namespace weft::backend::vulkan {

class VulkanExecutable final : public Executable {
  public:
    VulkanExecutable(program::Program program, const CompileOptions& options,
                     std::shared_ptr<Context> context)
        : program_(std::move(program)),
          options_(options),
          context_(std::move(context)),
          gpu_(*context_->gpu),
          uploader_(*context_),
          lowering_(program_, *context_, buffers_, uploader_),
          reading_(*context_, buffers_, lowering_),
          pace_(gpu_.description().kind, context_->limits.most_seconds),
          recordings_(program_, buffers_, lowering_, gpu_, pace_) {}
    ~VulkanExecutable() override {
        context_->held_bytes -= held_bytes_ + lowering_.scratch_bytes();
    }

    // Plans memory, and refuses what does not fit.
    Status Prepare(const MemoryPool& pool);

    const program::Program& program() const override { return program_; }
    Status LoadWeight(program::ValueId id, const RowSource& source) override;
    Status Run(const program::OpRange& ops, const Step& step, const Groups& groups) override;
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) override;
    Status Write(program::ValueId id, int64_t first_byte,
                 std::span<const std::byte> bytes) override;
    Status ZeroFill(program::Pool pool) override;
    Result<std::unique_ptr<HostSnapshot>> Snapshot(std::span<const program::ValueId> ids) override;
    Status ReadTop(program::ValueId id, int64_t row, int64_t columns,
                   std::span<Candidate> out) override;
    MemoryUse memory() const override;
    void SetTracing(bool on) override {
        tracing_ = on;
        times_.Clear();
    }
    std::span<const OpTiming> timings() const override { return times_.timings(); }
    TransferLog& transfers() override { return transfers_; }
    void SetProbe(Probe probe) override { probe_ = std::move(probe); }
    int64_t progress() const override {
        return progress_.load(std::memory_order_relaxed) + context_->kernels.progress();
    }

  private:
    Status Allocate();
    Status CopyPages();
    Status MakeGate();
    bool Exchanges() const;
    RecordingKey KeyOf(const Step& step, const OpRange& ops) const;
    WantedRows WantedOf(const Step& step, const OpRange& ops) const;
    Status RunStages(Recording& recording, size_t first, bool* too_long);
    Status WaitFor(uint64_t number, int64_t deadline_ms);
    Status RunStage(Stage& stage, bool* too_long);
    Status Exchange(const Stage& stage, uint64_t last);
    Status GoOnWithout(const Stage& stage);
    Status Await(const Submission& submission, uint64_t number, int64_t begin_ns, bool* too_long);
    // in_offset: of what goes to other ranks, in Buffers::transfers().
    Status Transfer(int32_t op, uint64_t in_offset);
    HostValue Operand(program::ValueId id, uint64_t offset) const;
    void NoteLength(const Submission& submission, double seconds, bool* too_long);
    void NoteTimes(const Submission& submission, int64_t begin_ns, int64_t end_ns);
    Status ShowToProbe(int32_t op);
    Status Explain(const Submission& submission, Status status) const;

    const program::Program program_;
    const CompileOptions options_;
    const std::shared_ptr<Context> context_;
    gpu::Device& gpu_;
    Buffers buffers_;
    Uploader uploader_;
    Lowering lowering_;
    Reading reading_;
    TableMemory tables_;
    Pace pace_;
    bool adapts_ = false;
    uint64_t scratch_bytes_ = 0, held_bytes_ = 0;
    std::mutex allocating_;
    std::atomic<bool> allocated_{false};
    std::atomic<bool> uploads_{false};  // some may be under way

    Fusion fusion_;
    Recordings recordings_;
    Status broken_;  // why nothing more can run

    // Of the step that runs.
    const Step* step_ = nullptr;
    OpRange ops_;
    bool first_run_ = false;  // of its recording
    Groups groups_;
    StepShape shape_;

    Backoff backoff_;  // after an exchange that was given up

    std::atomic<int64_t> progress_{0};
    bool tracing_ = false;
    OpTimes times_;
    TransferLog transfers_;
    Probe probe_;
};

}  // namespace weft::backend::vulkan
