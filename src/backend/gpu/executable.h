// The executable of a Program on a Vulkan device. executable.cc manages memory and prepares steps;
// stages.cc runs the stages of a step.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/gpu/compile.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/memory/step_parts.h"
#include "backend/gpu/memory/step_tables.h"
#include "backend/gpu/memory/upload.h"
#include "backend/gpu/memory/weight_ring.h"
#include "backend/gpu/record/backoff.h"
#include "backend/gpu/record/lowering.h"
#include "backend/gpu/record/op_times.h"
#include "backend/gpu/record/reading.h"
#include "backend/gpu/record/recordings.h"
#include "backend/parts.h"
#include "backend/side_thread.h"
#include "backend/transfer.h"

namespace weft::backend::on_gpu {

class GpuExecutable final : public Executable {
  public:
    GpuExecutable(program::ChunkedProgram chunked, const CompileOptions& options,
                  std::shared_ptr<Context> context)
        : chunked_(std::move(chunked)),
          program_(chunked_.program),
          options_(options),
          context_(std::move(context)),
          gpu_(*context_->gpu),
          uploader_(*context_),
          ring_(program_, buffers_, uploader_),
          lowering_(chunked_, options_.compute, *context_, buffers_, uploader_),
          reading_(*context_, buffers_, lowering_),
          budget_(gpu_.description().kind, context_->limits.most_seconds),
          recordings_(program_, buffers_, lowering_, gpu_, budget_),
          slots_(static_cast<size_t>(options.slots)) {}
    ~GpuExecutable() override { context_->held_bytes -= held_bytes_ + lowering_.scratch_bytes(); }

    // Plans memory. Errors: kOutOfMemory (the memory does not fit into `pool`), kUnsupported.
    Status Prepare(const MemoryPool& pool);
    // All buffers whose size depends on the Program or the options, the largest of each kind. Steps
    // allocate no other ones, unless their shape is unusual. Call this after Prepare().
    std::vector<PlannedBuffer> Planned() const;

    const program::Program& program() const override { return program_; }
    Status LoadWeight(program::ValueId id, const RowSource& source) override;
    Status Run(const program::OpRange& ops, const Step& step, const Communicators& groups) override;
    bool HasParts() const override { return most_parts_ > 0; }
    void ForgetGroups() override;
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) override;
    Status Write(program::ValueId id, int64_t first_byte,
                 std::span<const std::byte> bytes) override {
        const WritePart part{id, first_byte, bytes};
        return WriteAll({&part, 1});
    }
    Status ReadAll(std::span<const ReadPart> parts) override;
    Status WriteAll(std::span<const WritePart> parts) override;
    Status ZeroFill(program::Pool pool) override;
    Result<std::unique_ptr<HostSnapshot>> Snapshot(std::span<const program::ValueId> ids) override;
    std::span<const float> HostFloats(program::ValueId id, int64_t first,
                                      int64_t count) const override {
        return reading_.HostFloats(id, first, count);
    }
    Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
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
    Status CheckSizes() const;
    Status Allocate();
    uint64_t TableBytes() const;
    uint64_t HostBytes() const;
    Status RunBound(const OpRange& ops, const Step& step, const Communicators& groups);
    Status CopyPages();
    Status MakeSignal();
    Status TryPeers();
    bool ByPeers(const program::Op& op) const {
        return !in_parts_ && IsPeerSum(peers_.get(), program_, op, shape_);
    }
    bool Exchanges() const;
    bool trains() const { return !chunked_.chunks.empty(); }
    bool IsUpdate(const OpRange& ops) const {
        return trains() && ops.begin >= chunked_.chunks.back().end;
    }
    StepShape ShapeOfRun(const OpRange& ops, const Step& step) const;
    RecordingKey KeyOf(const Step& step, const OpRange& ops) const;
    WantedRows WantedOf(const Step& step, const OpRange& ops) const;
    bool Computes(const OpRange& ops, program::ValueId value) const;
    Status RunKept(const RecordingKey& key, bool* too_long);
    Status RunPass(const RecordingKey& key, bool* too_long);
    Status RunStages(Recording& recording, size_t first, bool* too_long);
    size_t PartsOf(const OpRange& ops, const Step& step);
    struct Part {
        Step step;
        StepShape shape;
        RecordingKey key;
        Recording* recording = nullptr;
    };
    Status RunInParts(const OpRange& ops, const Step& step);
    Status BindPart(size_t part, const OpRange& ops, const Step& step);
    Status RecordParts();
    Status RunPartStages(bool* too_long);
    enum class FirstRun { kNo, kYes };
    Status BeginStages(FirstRun first_run);
    Status WaitFor(uint64_t number, int64_t deadline_ms);
    Status SubmitStage(const Stage& stage, bool* too_long);
    Status EndStage(const Stage& stage, bool* too_long);
    bool MayBring(size_t weight) const {
        return running_.empty() || running_.front().number > ring_.ReaderOf(weight);
    }
    Status BringWeights(const Stage& stage, bool* too_long);
    Status BringAhead(const Recording& recording, size_t stage);
    Status AwaitFirst(size_t count, bool* too_long);
    Status AwaitAll(bool* too_long) { return AwaitFirst(running_.size(), too_long); }
    Status Exchange(const Stage& stage, uint64_t last);
    Status TakeHanded(const Stage& stage, int32_t before);
    Status RunBeside(const Stage& stage, bool* too_long);
    Status GoOnWithout(const Stage& stage);
    Status Await(const Submission& submission, uint64_t number, int64_t begin_ns, bool* too_long);
    // A transfer with all data that it needs, so that another thread can run it.
    struct HostTransfer {
        const program::Op* op = nullptr;
        HostValue in, out;
        Communicators groups;
        net::OpTag tag;
        bool by_peers = false;  // a sum through windows: the ranks only meet
        int64_t begin_ns = 0, end_ns = 0;
        Status Run();
    };
    HostTransfer TransferOf(int32_t op, const OperandPlace& place) const;
    Status Transfer(int32_t op, const OperandPlace& place);
    void NoteTransfer(const HostTransfer& transfer);
    Status StartOverlapped(bool* too_long);
    Status WaitForOverlapped(int32_t op);
    HostValue Operand(program::ValueId id, const Spot& at) const;
    void NoteLength(const Submission& submission, double seconds, bool* too_long);
    void NoteTimes(const Submission& submission, int64_t begin_ns, int64_t end_ns);
    Status ShowToProbe(int32_t op);
    Status Explain(const Submission& submission, Status status) const;

    // Copy of a step, for a later step with Step::again.
    struct SlotStep {
        std::vector<int32_t> tokens, positions, output_rows, targets, noise_keys;
        std::vector<float> row_weights, noise_amplitudes;
        std::vector<StepSequence> sequences;
        float loss_gradient = 1, side_gradient = 0;
        void Keep(const Step& step);
        // Returns the copied step, with the fields that are not copied taken from `step`.
        Step View(const Step& step) const;
    };

    const program::ChunkedProgram chunked_;
    const program::Program& program_;
    const CompileOptions options_;
    const std::shared_ptr<Context> context_;
    gpu::Device& gpu_;
    Buffers buffers_;
    Uploader uploader_;
    WeightRing ring_;
    Lowering lowering_;
    Reading reading_;
    TableMemory tables_;
    int most_parts_ = 0;  // most parts of a step; 0: steps run as a whole
    std::array<TableMemory, static_cast<size_t>(kMostParts)> part_tables_;
    SubmissionBudget budget_;
    bool adapts_ = false;
    ScratchPlan scratch_;
    uint64_t held_bytes_ = 0;
    std::mutex allocating_;
    std::atomic<bool> allocated_{false};
    std::atomic<bool> uploads_{false};  // uploads may be under way

    std::unique_ptr<PeerSums> peers_;  // null: not tried yet, or no sums
    bool tried_peers_ = false;

    Fusion fusion_;
    Recordings recordings_;
    std::vector<SlotStep> slots_;
    int slot_ = 0;   // slot of the last Run
    Status broken_;  // the error after which nothing runs

    // State of the running step.
    const Step* step_ = nullptr;
    OpRange ops_;
    bool first_run_ = false;  // whether the recording of this step runs for the first time
    Communicators groups_;
    StepShape shape_;
    std::vector<RowRange> prompt_rows_;
    std::array<StepPart, static_cast<size_t>(kMostParts)> part_rows_;
    std::vector<Part> parts_;

    // Submissions under way, oldest first.
    struct Running {
        const Submission* submission = nullptr;
        uint64_t number = 0;
        int64_t begin_ns = 0;
    };
    std::deque<Running> running_;
    int64_t last_end_ns_ = 0;  // end of the last submission waited for
    // Whether last_end_ns_ is exact. In a step in parts, a submission may end during a transfer.
    bool last_end_is_exact_ = true;
    bool in_parts_ = false;  // the running step runs in parts
    // The stage whose values the host's next run reads, once the first `hands_behind_` entries of
    // running_ are done; null: none. hands_early_: such a stage has run in this step.
    const Stage* handing_ = nullptr;
    size_t hands_behind_ = 0;
    bool hands_early_ = false;
    // A stage whose transfer runs beside later stages. The transfer starts once the first
    // `starts_behind_` entries of running_ are done.
    const Stage* starting_ = nullptr;
    size_t starts_behind_ = 0;

    Backoff backoff_;  // counts steps without exchanges after a failed exchange

    std::atomic<int64_t> progress_{0};
    bool tracing_ = false;
    OpTimes times_;
    TransferLog transfers_;
    Probe probe_;

    // Transfers that run beside submissions and whose result was not collected yet: the op, and the
    // number of its job on side_. After one of these transfers fails, no more of them run. While a
    // job runs, only the thread of side_ may access overlap_status_.
    std::vector<std::pair<int32_t, int64_t>> jobs_;
    Status overlap_status_;
    SideThread side_{{}};
};

}  // namespace weft::backend::on_gpu
