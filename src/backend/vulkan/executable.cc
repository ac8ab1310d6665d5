// Steps on a Vulkan device.
//
// A step writes its tables, takes the recording of its shape (or makes one), submits its stages one
// after another, and runs transfers between them on the host (backend/transfer.h).
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "backend/transfer.h"
#include "backend/vulkan/compile.h"
#include "backend/vulkan/dry_run.h"
#include "backend/vulkan/fuse.h"
#include "backend/vulkan/lower.h"
#include "backend/vulkan/lowering.h"
#include "backend/vulkan/products.h"
#include "backend/vulkan/reading.h"
#include "backend/vulkan/recordings.h"
#include "backend/vulkan/step_tables.h"
#include "backend/vulkan/upload.h"
#include "backend/vulkan/vulkan_device.h"
#include "base/check.h"
#include "base/log.h"

namespace weft::backend::vulkan {
namespace {

using program::OpKind;

// Steps without exchanges after one was given up: what held up the host may last.
constexpr int kStepsAfterGivingUp = 100;

class VulkanExecutable final : public Executable {
  public:
    VulkanExecutable(const program::Program& program, const CompileOptions& options,
                     std::shared_ptr<Context> context)
        : program_(program),
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

    Status Prepare(const MemoryPool& pool) {
        WEFT_TRY(CheckProgram(program_, gpu_.description(), context_->arithmetic));
        if (context_->limits.fuses && !context_->reference) {
            fusion_ = Fusion(program_, options_.keep);
        }
        WEFT_TRY(buffers_.Plan(program_, fusion_.LivesOf(program_), options_));
        StepShape most;
        most.rows = static_cast<int32_t>(options_.max_tokens);
        most.outputs = static_cast<int32_t>(options_.max_outputs);
        most.sequences = most.blocks = most.rows;
        most.adapted = true;
        const int64_t positions = options_.kv_pages * options_.page_tokens;
        most.positions = static_cast<int32_t>(
            std::bit_ceil(static_cast<uint32_t>(std::clamp<int64_t>(positions, 1, 1 << 30))));
        WEFT_ASSIGN(scratch_bytes_, ScratchBytes(program_, gpu_.description(), most,
                                                 context_->reference, context_->arithmetic));
        adapts_ = std::ranges::any_of(
            program_.ops, [](const program::Op& op) { return op.kind() == OpKind::kAdapt; });
        WEFT_TRY(CheckFits(memory(), pool, gpu_.description()));
        return buffers_.CheckSizes(gpu_);
    }

    Status LoadWeight(program::ValueId id, const RowSource& source) override;
    Status Run(const Step& step, const Groups& groups) override;
    Status Read(program::ValueId id, int64_t first, std::span<float> out) override;
    Status ReadTop(program::ValueId id, int64_t row, int64_t columns,
                   std::span<Candidate> out) override;
    bool ends_with_exchange() const override { return EndsWithExchange(program_); }
    MemoryUse memory() const override;
    void SetTracing(bool on) override {
        tracing_ = on;
        timings_.clear();
    }
    std::span<const OpTiming> timings() const override { return timings_; }
    TransferLog& transfers() override { return transfers_; }
    void SetProbe(Probe probe) override { probe_ = std::move(probe); }
    // Kernels that are compiled for a first step count, too: that takes seconds.
    int64_t progress() const override {
        return progress_.load(std::memory_order_relaxed) + context_->kernels.count();
    }

  private:
    Status Allocate();
    OpRange OpsOf(StepPart part) const;
    Status CopyPages();
    Status MakeGate();
    bool Exchanges() const;
    RecordingKey KeyOf(const Step& step) const;
    WantedRows WantedOf(const Step& step, const OpRange& ops) const;
    Status RunStages(Recording& recording, size_t first, bool* too_long);
    Status RunStage(Stage& stage, bool* too_long);
    Status Exchange(const Stage& stage, uint64_t last);
    Status GoOnWithout(const Stage& stage, bool* too_long);
    Status Await(const Submission& submission, uint64_t number, int64_t begin_ns, bool* too_long);
    Status Transfer(int32_t op);
    HostValue Operand(program::ValueId id, uint64_t offset) const;
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
    Groups groups_;
    StepShape shape_;

    int steps_without_ = 0;  // exchanges

    std::atomic<int64_t> progress_{0};
    bool tracing_ = false;
    std::vector<OpTiming> timings_;
    TransferLog transfers_;
    Probe probe_;
};

// ---- Memory -------------------------------------------------------------------------------------

Status VulkanExecutable::Allocate() {
    if (allocated_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(allocating_);
    if (allocated_) return {};
    WEFT_TRY(buffers_.Allocate(gpu_));
    WEFT_TRY(tables_.Allocate(gpu_, options_));
    lowering_.SetTables(tables_.tables());
    held_bytes_ = buffers_.weight_bytes() + buffers_.kv_bytes() + buffers_.arena_bytes() +
                  tables_.size_bytes();
    context_->held_bytes += held_bytes_;
    // Kernels multiply what they mask by zero: no NaN may stand there.
    const std::lock_guard device(context_->mutex);
    WEFT_ASSIGN(const auto commands, gpu_.Record());
    for (const gpu::Buffer& buffer : buffers_.kv()) {
        commands->Fill(buffer, 0, buffer.size_bytes(), 0);
    }
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const uint64_t number, gpu_.Submit(*commands));
    WEFT_TRY(gpu_.Wait(number, Deadline::In(pace_.DeadlineMs(0))));
    WEFT_TRY(MakeGate());
    allocated_.store(true, std::memory_order_release);
    return {};
}

// On a processor that stands in for a GPU, a kernel that polls takes a core from the others.
Status VulkanExecutable::MakeGate() {
    const bool asked =
        options_.device_sum == DeviceSum::kSpin ||
        (options_.device_sum == DeviceSum::kAuto && gpu_.description().kind != gpu::Kind::kCpu);
    const bool sums = std::ranges::any_of(
        program_.ops, [](const program::Op& op) { return op.kind() == OpKind::kAllReduce; });
    if (!asked || !sums || context_->gate != nullptr) return {};
    const double patience = gpu_.description().kind == gpu::Kind::kCpu ? Gate::kHostPatienceSeconds
                                                                       : Gate::kPatienceSeconds;
    WEFT_ASSIGN(context_->gate, Gate::Make(gpu_, context_->kernels, patience));
    if (context_->gate->works()) {
        Log(LogLevel::kDebug,
            "{}: a sum in the midst of a submission costs {:.1f} us beside the wire's, one that "
            "ends it {:.1f}",
            context_->Who(), context_->gate->exchange_us(), context_->gate->submission_us());
        return {};
    }
    const bool told = options_.device_sum == DeviceSum::kSpin;
    Log(told ? LogLevel::kWarning : LogLevel::kDebug,
        "{}: each sum over ranks ends a submission (as with --gpu-sum split): {}", context_->Who(),
        context_->gate->why());
    return {};
}

Status VulkanExecutable::LoadWeight(program::ValueId id, const RowSource& source) {
    WEFT_TRY(Allocate());
    uploads_ = true;
    const program::Value& value = program_.value(id);
    const Piece& piece = buffers_.WeightPiece(id);
    const gpu::Buffer& to = buffers_.weights().buffer(piece);
    if (HoldsVectors(value.shape)) return LoadVectors(value, to, piece.offset, source, uploader_);
    return LoadMatrix(value, buffers_.Layout(id), to, piece.offset, source, uploader_);
}

MemoryUse VulkanExecutable::memory() const {
    const uint64_t tables = allocated_ ? tables_.size_bytes() : TableMemory::Bytes(options_);
    const uint64_t scratch = std::max(scratch_bytes_, lowering_.scratch_bytes());
    return {buffers_.weight_bytes(), buffers_.kv_bytes(),
            buffers_.arena_bytes() + tables + scratch};
}

// ---- Steps --------------------------------------------------------------------------------------

OpRange VulkanExecutable::OpsOf(StepPart part) const {
    const size_t all = program_.ops.size();
    switch (part) {
        case StepPart::kWhole: return {0, all};
        case StepPart::kCompute: return {0, all - 2};
        case StepPart::kSend: return {all - 2, all - 1};
        case StepPart::kReceive: return {all - 1, all};
    }
    return {};
}

Status VulkanExecutable::Run(const Step& step, const Groups& groups) {
    if (!broken_.ok()) return broken_;
    CheckStep(step, options_, ends_with_exchange());
    WEFT_TRY(Allocate());
    if (uploads_.exchange(false)) WEFT_TRY(uploader_.Finish());
    step_ = &step;
    groups_ = groups;
    timings_.clear();
    transfers_.Begin();
    shape_ = ShapeOf(step, adapts_);
    WEFT_ASSIGN(const bool moved, tables_.MakeRoom(gpu_, step));
    if (moved) {
        recordings_.Clear();
        lowering_.SetTables(tables_.tables());
    }
    tables_.Write(step);
    const bool computes = step.part == StepPart::kWhole || step.part == StepPart::kCompute;
    if (computes && !step.copies.empty()) WEFT_TRY(CopyPages());
    const RecordingKey key = KeyOf(step);
    // Other parts of a step leave what the host reads as it is.
    if (step.part == StepPart::kWhole || step.part == StepPart::kReceive) {
        reading_.NoteBrought({}, 0);
    }
    bool too_long = false;
    if (probe_) {
        WEFT_ASSIGN(Recording once, recordings_.Make(key));
        return RunStages(once, 0, &too_long);
    }
    steps_without_ = std::max(0, steps_without_ - 1);
    WEFT_ASSIGN(Recording* const recording, recordings_.Get(key));
    const Status status = RunStages(*recording, 0, &too_long);
    if (too_long) recordings_.Drop(key);
    if (status.ok() && key.work.wanted.value != program::kNoValue) {
        reading_.NoteBrought(key.work.wanted, shape_.outputs);
    }
    return status;
}

bool VulkanExecutable::Exchanges() const {
    const Gate* const gate = context_->gate.get();
    if (gate == nullptr || !gate->works() || tracing_ || steps_without_ > 0) return false;
    const bool asked =
        options_.device_sum == DeviceSum::kSpin ||
        (options_.device_sum == DeviceSum::kAuto && gate->exchange_us() < gate->submission_us());
    return asked && shape_.rows <= kMatvecRows;
}

Status VulkanExecutable::CopyPages() {
    const auto count = static_cast<int64_t>(step_->copies.size());
    if (buffers_.caches().empty()) return {};
    WEFT_ASSIGN(const std::vector<Dispatch> dispatches,
                lowering_.LowerAlone(shape_, [&](Emitter& emitter) {
                    return LowerPageCopies(emitter, buffers_.caches(), count);
                }));
    WEFT_ASSIGN(const auto commands, RecordAlone(gpu_, dispatches));
    return RunAlone(gpu_, *commands, pace_.DeadlineMs(0));
}

// Who looks into a step sees each op by itself.
RecordingKey VulkanExecutable::KeyOf(const Step& step) const {
    const bool clock = gpu_.description().timestamp_ns > 0;
    const bool each_op = probe_ != nullptr || (tracing_ && !clock);
    RecordingKey key{shape_, {OpsOf(step.part)}, {each_op, tracing_, clock}};
    if (probe_ || tracing_) return key;
    key.work.fusion = &fusion_;
    key.work.wanted = WantedOf(step, key.work.ops);
    if (Exchanges()) key.options.gate = context_->gate.get();
    return key;
}

// What these ops can bring along of what is wanted: few rows, which they compute. The count of the
// best is rounded up, so that steps which want a little more share a recording.
WantedRows VulkanExecutable::WantedOf(const Step& step, const OpRange& ops) const {
    WantedRows wanted = step.wanted;
    if (wanted.value == program::kNoValue || shape_.outputs == 0) return {};
    const auto range = std::span(program_.ops).subspan(ops.begin, ops.end - ops.begin);
    const bool computes = std::ranges::any_of(range, [&](const program::Op& op) {
        return std::ranges::find(op.outputs, wanted.value) != op.outputs.end();
    });
    const program::Shape& shape = program_.value(wanted.value).shape;
    const bool of_outputs = shape.rank == 2 && shape[0] == program::kOutputs;
    if (!computes || !of_outputs || !buffers_.InArena(wanted.value)) return {};
    const uint64_t bytes = uint64_t{sizeof(float)} * static_cast<uint64_t>(shape_.outputs) *
                           static_cast<uint64_t>(shape[1]);
    wanted.whole = wanted.whole && bytes <= Buffers::kWholeBytes;
    const bool top = wanted.top > 0 && wanted.top <= Buffers::kMostTop &&
                     wanted.columns <= shape[1] && shape_.outputs <= Buffers::kMostTopRows;
    const auto rounded = std::bit_ceil(static_cast<uint32_t>(std::max(wanted.top, 1)));
    wanted.top = top ? static_cast<int32_t>(std::min<int64_t>(rounded, wanted.columns)) : 0;
    if (!top) wanted.columns = 0;
    return top || wanted.whole ? wanted : WantedRows{};
}

Status VulkanExecutable::RunStages(Recording& recording, size_t first, bool* too_long) {
    for (size_t i = first; i < recording.stages.size(); ++i) {
        Stage& stage = recording.stages[i];
        WEFT_TRY(RunStage(stage, too_long));
        if (!stage.exchanged.empty() && context_->gate->GaveUp() != 0) {
            return GoOnWithout(stage, too_long);
        }
        if (stage.transfer >= 0) WEFT_TRY(Transfer(stage.transfer));
    }
    return {};
}

// All submissions are handed over at once; but a probe reads after each.
Status VulkanExecutable::RunStage(Stage& stage, bool* too_long) {
    std::vector<uint64_t> numbers;
    if (!stage.exchanged.empty()) {
        context_->gate->Begin(static_cast<uint32_t>(stage.exchanged.size()));
    }
    int64_t begin_ns = NowNs();
    for (const Submission& submission : stage.submissions) {
        const Result<uint64_t> number = gpu_.Submit(*submission.commands);
        if (!number.ok()) return Explain(submission, number.error());
        numbers.push_back(*number);
        if (!probe_) continue;
        WEFT_TRY(Await(submission, *number, begin_ns, too_long));
        if (submission.shows >= 0) WEFT_TRY(ShowToProbe(submission.shows));
        begin_ns = NowNs();
    }
    if (!stage.exchanged.empty()) WEFT_TRY(Exchange(stage, numbers.back()));
    for (size_t i = 0; !probe_ && i < numbers.size(); ++i) {
        WEFT_TRY(Await(stage.submissions[i], numbers[i], begin_ns, too_long));
        begin_ns = NowNs();
    }
    return {};
}

// Sums, one after another, as the device comes to them. Where it gives one up, its submissions end.
Status VulkanExecutable::Exchange(const Stage& stage, uint64_t last) {
    const int64_t deadline_ms = pace_.DeadlineMs(stage.submissions.back().estimate);
    for (uint32_t i = 0; i < stage.exchanged.size(); ++i) {
        const Result<bool> came = context_->gate->Await(i + 1, last, Deadline::In(deadline_ms));
        if (!came.ok()) {
            context_->hangs = true;
            broken_ = Explain(stage.submissions.back(), came.error());
            return broken_;
        }
        if (!*came) return {};
        const Status summed = Transfer(stage.exchanged[i]);
        if (!summed.ok()) {
            // It gives up, and ends, before anything else may run.
            if (!gpu_.Wait(last, Deadline::In(deadline_ms)).ok()) context_->hangs = true;
            return summed;
        }
        context_->gate->Open(i + 1);
    }
    return {};
}

// All ops up to the sum that was given up are done, and the host has that.
Status VulkanExecutable::GoOnWithout(const Stage& stage, bool* too_long) {
    const uint32_t number = context_->gate->GaveUp();
    WEFT_CHECK(number <= stage.exchanged.size());
    const int32_t op = stage.exchanged[number - 1];
    steps_without_ = kStepsAfterGivingUp;
    Log(LogLevel::kDebug,
        "{}, step {}: the sum of op {} took long; the next {} steps have a "
        "submission for each sum",
        context_->Who(), step_->number, op, kStepsAfterGivingUp);
    RecordingKey key = KeyOf(*step_);
    key.options.gate = nullptr;
    WEFT_ASSIGN(Recording* const recording, recordings_.Get(key));
    size_t done = 0;
    while (recording->stages[done].transfer != op) ++done;
    return RunStages(*recording, done + 1, too_long);
}

Status VulkanExecutable::Await(const Submission& submission, uint64_t number, int64_t begin_ns,
                               bool* too_long) {
    const int64_t deadline_ms = pace_.DeadlineMs(submission.estimate);
    const Status status = gpu_.Wait(number, Deadline::In(deadline_ms));
    if (!status.ok()) {
        context_->hangs = true;
        broken_ = Explain(submission, status);
        return broken_;
    }
    const int64_t end_ns = NowNs();
    const double seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
    if (!submission.waits && pace_.Took(submission.estimate, seconds)) {
        *too_long = *too_long || submission.ops > 1;
    }
    progress_.fetch_add(submission.ops, std::memory_order_relaxed);
    if (tracing_) NoteTimes(submission, begin_ns, end_ns);
    return {};
}

Status VulkanExecutable::Explain(const Submission& submission, Status status) const {
    const auto name = [&](int32_t op) {
        return program::OpName(program_.ops[static_cast<size_t>(op)].kind());
    };
    return MakeError(status.error().code,
                     "{}, step {}, ops {} ({}) to {} ({}): {}. 'dmesg' may say why the driver "
                     "gave up; --device cpu computes without it.",
                     context_->Who(), step_->number, submission.first_op, name(submission.first_op),
                     submission.last_op, name(submission.last_op), status.error().message);
}

// ---- Transfers ----------------------------------------------------------------------------------

HostValue VulkanExecutable::Operand(program::ValueId id, uint64_t offset) const {
    const program::Value& value = program_.value(id);
    const int64_t cols = value.shape[value.shape.rank - 1];
    const int64_t count = value.shape.Elements(shape_.rows, shape_.outputs);
    return {buffers_.transfers().host() + offset, value.dtype, count / cols, cols};
}

Status VulkanExecutable::Transfer(int32_t number) {
    const program::Op& op = program_.ops[static_cast<size_t>(number)];
    HostValue in, out;
    if (!op.inputs.empty()) in = Operand(op.inputs[0], buffers_.InOffset());
    if (!op.outputs.empty()) out = Operand(op.outputs[0], buffers_.OutOffset());
    const net::OpTag tag{program::OpName(op.kind()), number, step_->number};
    const int64_t begin_ns = NowNs();
    WEFT_TRY(RunTransfer(op, in, out, groups_, tag));
    const int64_t end_ns = NowNs();
    const bool timed = op.kind() != OpKind::kAllReduce;  // a sum knows its time
    const std::span<const std::byte> result =
        out.data == nullptr ? std::span<const std::byte>() : out.bytes();
    transfers_.Note(op, result, groups_, timed ? end_ns - begin_ns : 0);
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (tracing_) timings_.push_back({number, begin_ns, end_ns, transfers_.last_arrival_ns()});
    return {};
}

// ---- Traces, probes -----------------------------------------------------------------------------

// The device's clock is not the host's: what it says counts back from the end of the wait.
void VulkanExecutable::NoteTimes(const Submission& submission, int64_t begin_ns, int64_t end_ns) {
    if (submission.timed.empty()) return;
    if (gpu_.description().timestamp_ns == 0) {  // one op
        timings_.push_back({submission.timed[0], begin_ns, end_ns, 0});
        return;
    }
    const auto count = static_cast<uint32_t>(submission.timed.size() + 1);
    const std::vector<int64_t> times = gpu_.Times(*submission.commands, count);
    for (size_t i = 0; i + 1 < times.size(); ++i) {
        const int64_t from = end_ns - (times.back() - times[i]);
        timings_.push_back({submission.timed[i], from, from + times[i + 1] - times[i], 0});
    }
}

Status VulkanExecutable::ShowToProbe(int32_t number) {
    const program::Op& op = program_.ops[static_cast<size_t>(number)];
    if (op.outputs.empty() || !buffers_.InArena(op.outputs[0])) return {};
    const program::Value& value = program_.value(op.outputs[0]);
    if (value.dtype != DType::kF32 || value.shape.rank != 2) return {};
    return probe_(number, value.shape[0] == program::kOutputs ? shape_.outputs : shape_.rows);
}

// ---- Reading ------------------------------------------------------------------------------------

Status VulkanExecutable::Read(program::ValueId id, int64_t first, std::span<float> out) {
    if (!broken_.ok()) return broken_;
    return reading_.Read(id, first, out, pace_.DeadlineMs(0));
}

Status VulkanExecutable::ReadTop(program::ValueId id, int64_t row, int64_t columns,
                                 std::span<Candidate> out) {
    if (!broken_.ok()) return broken_;
    return reading_.ReadTop(id, row, columns, out, pace_.DeadlineMs(0));
}

}  // namespace

Result<std::unique_ptr<Executable>> CompileForVulkan(const program::Program& program,
                                                     const CompileOptions& options,
                                                     std::shared_ptr<Context> context,
                                                     const MemoryPool& pool) {
    auto executable = std::make_unique<VulkanExecutable>(program, options, std::move(context));
    WEFT_TRY(executable->Prepare(pool));
    return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace weft::backend::vulkan
