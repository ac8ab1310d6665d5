// Memory and steps of the executable on a Vulkan device.
//
// A step writes its tables, finds or creates the recording of its shape, and runs its stages
// (stages.cc).
#include "backend/gpu/executable.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "backend/gpu/dry_run.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/products.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "hw/cpu.h"
#include "program/placement.h"

namespace weft::backend::on_gpu {

using program::OpKind;

// ---- Memory -------------------------------------------------------------------------------------

Status GpuExecutable::Prepare(const MemoryPool& pool) {
    lowering_.set_trains(trains());
    const DryOptions dry{lowering_.arithmetic(), context_->reference, trains()};
    WEFT_TRY(CheckProgram(program_, gpu_.description(), {dry.arithmetic, false, dry.trains}));
    if (context_->limits.fuses && !context_->reference && !trains()) {
        fusion_ = Fusion(program_, options_.keep, options_.ways);
    }
    WEFT_TRY(buffers_.Plan(chunked_, fusion_.LivesOf(program_), options_));
    ring_.Plan(options_.readers);
    most_parts_ = trains() ? 0 : MostParts(program_, options_);
    WEFT_ASSIGN(scratch_, PlanScratch(program_, fusion_, gpu_.description(),
                                      LargestOf(options_, lowering_.arithmetic()), dry));
    lowering_.SetScratch(scratch_);
    adapts_ = std::ranges::any_of(
        program_.ops, [](const program::Op& op) { return program::IsOfAdapters(op.kind()); });
    // (Training checks all ranks of a host together.)
    if (!trains()) WEFT_TRY(CheckFits(memory(), pool, gpu_.description()));
    return CheckSizes();
}

std::vector<PlannedBuffer> GpuExecutable::Planned() const {
    std::vector<PlannedBuffer> planned = buffers_.Planned();
    for (const auto& [name, bytes] : scratch_.sizes) planned.push_back({name.c_str(), bytes});
    planned.push_back({"a constant", scratch_.largest_constant_bytes});
    std::vector<CompileOptions> steps = {options_};
    if (most_parts_ > 0) steps.push_back(PartOptions(options_, most_parts_));
    for (const CompileOptions& options : steps) {
        for (const uint64_t size : TableMemory::Sizes(options)) {
            planned.push_back({"a table of a step", size});
        }
    }
    return planned;
}

Status GpuExecutable::CheckSizes() const {
    const uint64_t most = gpu_.most_buffer_bytes();
    for (const PlannedBuffer& buffer : Planned()) {
        if (buffer.bytes <= most) continue;
        const char* const of_rows =
            trains() ? ", a smaller --micro-batch or --seq-len"
                     : ", a smaller --ctx or --prefill-chunk (weft serve: --step-tokens)";
        const char* const of_weight = trains() ? "" : ", --experts auto for a layer's experts";
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} needs a buffer of {} bytes; the driver allows {}. Use more ranks "
                         "(--tp){}, or --device cpu.",
                         gpu_.description().name, buffer.what, buffer.bytes, most,
                         buffer.of_weight ? of_weight : of_rows);
    }
    return {};
}

Status GpuExecutable::Allocate() {
    if (allocated_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(allocating_);
    if (allocated_) return {};
    WEFT_TRY(buffers_.Allocate(gpu_));
    WEFT_TRY(tables_.Allocate(gpu_, options_));
    for (TableMemory& tables : std::span(part_tables_).first(static_cast<size_t>(most_parts_))) {
        WEFT_TRY(tables.Allocate(gpu_, PartOptions(options_, most_parts_)));
    }
    lowering_.SetTables(tables_.tables());
    lowering_.SetUpdateScalars(tables_.scalars());
    held_bytes_ = buffers_.weight_bytes() + buffers_.kv_bytes() + buffers_.arena_bytes() +
                  TableBytes() - HostBytes();
    context_->held_bytes += held_bytes_;
    // Kernels multiply masked elements by zero, so these must not be NaN.
    const std::lock_guard device(context_->mutex);
    WEFT_ASSIGN(const auto commands, gpu_.Record());
    for (const program::Pool pool :
         {program::Pool::kCache, program::Pool::kGradient, program::Pool::kOptimizer}) {
        for (const gpu::Buffer& buffer : buffers_.Pool(pool).buffers()) {
            commands->Fill(buffer, 0, buffer.size_bytes(), 0);
        }
    }
    WEFT_TRY(commands->End());
    WEFT_ASSIGN(const uint64_t number, gpu_.Submit(*commands));
    WEFT_TRY(gpu_.Wait(number, Deadline::In(budget_.DeadlineMs(0))));
    WEFT_TRY(MakeSignal());
    allocated_.store(true, std::memory_order_release);
    return {};
}

// On a software GPU, a polling kernel occupies a core that other kernels need.
Status GpuExecutable::MakeSignal() {
    const bool asked =
        options_.device_sum == DeviceSum::kSpin ||
        (options_.device_sum != DeviceSum::kSplit && gpu_.description().kind != gpu::Kind::kCpu);
    const bool sums = std::ranges::any_of(program_.ops, [](const program::Op& op) {
        return op.kind() == OpKind::kAllReduce || program::IsFromHost(op);
    });
    if (!asked || !sums || context_->signal != nullptr) return {};
    const double patience = gpu_.description().kind == gpu::Kind::kCpu
                                ? HostSignal::kHostPatienceSeconds
                                : HostSignal::kPatienceSeconds;
    const KernelCache::Compiling compiling(context_->kernels);
    WEFT_ASSIGN(context_->signal, HostSignal::Make(gpu_, context_->kernels, patience));
    if (context_->signal->works()) {
        Log(LogLevel::kDebug,
            "{}: besides the wire, an all-reduce inside a submission costs {:.1f} us, one that "
            "ends the submission {:.1f} us",
            context_->Who(), context_->signal->exchange_us(), context_->signal->submission_us());
        return {};
    }
    const bool told = options_.device_sum == DeviceSum::kSpin;
    Log(told ? LogLevel::kWarning : LogLevel::kDebug,
        "{}: each all-reduce ends a submission (as with --gpu-allreduce split): {}",
        context_->Who(), context_->signal->why());
    return {};
}

// Called at the first step of an epoch, by all ranks. Their devices are alike, so all have windows
// or none has.
Status GpuExecutable::TryPeers() {
    if (std::exchange(tried_peers_, true) || trains() || transfers_.checking()) return {};
    const bool sums = std::ranges::any_of(program_.ops, [&](const program::Op& op) {
        return FloatSumBytes(program_, op, shape_).has_value();
    });
    const auto full = [](SumWire wire) { return wire == SumWire::kF64 || wire == SumWire::kF32; };
    if (!sums || groups_.tensor->size() == 1 || !full(groups_.wire) || !full(groups_.prompt_wire))
        return {};
    const bool asked = options_.device_sum == DeviceSum::kPeer;
    if (gpu_.description().api == gpu::Api::kVulkan && !asked) return {};
    PeerSums::Use use = asked ? PeerSums::Use::kAlways : PeerSums::Use::kNever;
    if (options_.device_sum == DeviceSum::kAuto) use = PeerSums::Use::kIfFaster;
    WEFT_ASSIGN(peers_, PeerSums::Make(gpu_, context_->kernels, *groups_.tensor,
                                       buffers_.operand_bytes(), use));
    held_bytes_ += peers_->held_bytes();
    context_->held_bytes += peers_->held_bytes();
    if (peers_->works()) {
        Log(LogLevel::kDebug, "{}: all-reduces go through GPU memory: {}", context_->Who(),
            peers_->times());
    } else {
        Log(asked ? LogLevel::kWarning : LogLevel::kDebug,
            "{}: all-reduces go through host memory: {}", context_->Who(), peers_->why());
    }
    return {};
}

// (Recordings have the addresses of windows. After an error of the device, they may still run.)
void GpuExecutable::ForgetGroups() {
    tried_peers_ = false;
    if (peers_ == nullptr || !broken_.ok()) return;
    recordings_.Clear();
    held_bytes_ -= peers_->held_bytes();
    context_->held_bytes -= peers_->held_bytes();
    peers_.reset();
}

Status GpuExecutable::LoadWeight(program::ValueId id, const RowSource& source) {
    if (const int64_t streamed = buffers_.StreamedIndex(id); streamed >= 0) {
        ring_.Keep(static_cast<size_t>(streamed), source);
        return {};
    }
    WEFT_TRY(Allocate());
    uploads_ = true;
    const program::Value& value = program_.value(id);
    const Spot to = buffers_.At(id, 0);
    if (HoldsVectors(value.shape)) {
        return LoadVectors(value, *to.buffer, to.offset, source, uploader_);
    }
    return LoadMatrix(value, buffers_.Layout(id), *to.buffer, to.offset, source, uploader_);
}

uint64_t GpuExecutable::TableBytes() const {
    uint64_t bytes = allocated_ ? tables_.size_bytes() : TableMemory::Bytes(options_);
    for (int i = 0; i < most_parts_; ++i) {
        bytes += TableMemory::Bytes(PartOptions(options_, most_parts_));
    }
    return bytes;
}

// A card's own memory is separate from the host's.
uint64_t GpuExecutable::HostBytes() const {
    return gpu_.description().unified ? 0 : buffers_.host_bytes() + TableBytes();
}

MemoryUse GpuExecutable::memory() const {
    uint64_t arena = buffers_.arena_bytes() + TableBytes();
    arena += std::max(scratch_.bytes(), lowering_.scratch_bytes());
    if (peers_ != nullptr) arena += peers_->held_bytes();
    return {buffers_.weight_bytes(), buffers_.kv_bytes(), arena, HostBytes()};
}

// ---- Steps --------------------------------------------------------------------------------------

Status GpuExecutable::Run(const program::OpRange& ops, const Step& step,
                          const Communicators& groups) {
    if (!broken_.ok()) return broken_;
    WEFT_TRY(CheckStep(step, options_));
    WEFT_TRY(Allocate());
    if (uploads_.exchange(false)) WEFT_TRY(uploader_.Finish());
    SlotStep& kept = slots_[static_cast<size_t>(step.slot)];
    if (trains() && !step.again) kept.Keep(step);
    const Step whole = trains() && !IsUpdate(ops) ? kept.View(step) : step;
    return RunBound(ops, whole, groups);
}

void GpuExecutable::SlotStep::Keep(const Step& step) {
    tokens.assign(step.tokens.begin(), step.tokens.end());
    positions.assign(step.positions.begin(), step.positions.end());
    output_rows.assign(step.output_rows.begin(), step.output_rows.end());
    targets.assign(step.targets.begin(), step.targets.end());
    sequences.assign(step.sequences.begin(), step.sequences.end());
    row_weights.assign(step.row_weights.begin(), step.row_weights.end());
    noise_keys.assign(step.noise_keys.begin(), step.noise_keys.end());
    noise_amplitudes.assign(step.noise_amplitudes.begin(), step.noise_amplitudes.end());
    loss_gradient = step.loss_gradient;
    side_gradient = step.side_gradient;
}

Step GpuExecutable::SlotStep::View(const Step& step) const {
    Step view = step;
    view.tokens = tokens;
    view.positions = positions;
    view.output_rows = output_rows;
    view.targets = targets;
    view.sequences = sequences;
    view.row_weights = row_weights;
    view.noise_keys = noise_keys;
    view.noise_amplitudes = noise_amplitudes;
    view.loss_gradient = loss_gradient;
    view.side_gradient = side_gradient;
    return view;
}

// An update has no rows.
StepShape GpuExecutable::ShapeOfRun(const OpRange& ops, const Step& step) const {
    if (IsUpdate(ops)) return {.rows = 1, .outputs = 1};
    StepShape shape = ShapeOf(step, adapts_);
    const RowRange own = OwnRows(shape.rows, groups_);
    shape.own_begin = static_cast<int32_t>(own.begin);
    shape.own_rows = static_cast<int32_t>(own.count);
    return shape;
}

Status GpuExecutable::RunBound(const OpRange& ops, const Step& step, const Communicators& groups) {
    step_ = &step;
    ops_ = ops;
    slot_ = step.slot;
    groups_ = groups;
    FindPromptRows(step.sequences, 0, std::ssize(step.tokens), prompt_rows_);
    groups_.prompt_rows = prompt_rows_;
    times_.Clear();
    transfers_.Begin();
    shape_ = ShapeOfRun(ops, step);
    if (groups.tensor != nullptr) WEFT_TRY(TryPeers());
    WEFT_ASSIGN(const bool moved, tables_.MakeSpace(gpu_, step));
    if (moved) {
        recordings_.Clear();
        lowering_.SetTables(tables_.tables());
    }
    if (IsUpdate(ops)) {
        lowering_.FillUpdateScalars(
            {step.number, step.rate, step.gradient_scale, step.average_share});
    } else {
        tables_.Write(WithOwnTokens(step, groups_));
    }
    if (!step.copies.empty()) WEFT_TRY(CopyPages());
    parts_.assign(PartsOf(ops, step), {});
    in_parts_ = !parts_.empty();
    if (in_parts_) return RunInParts(ops, step);
    const RecordingKey key = KeyOf(step, ops);
    // An earlier range of the step keeps results that the host reads, unless this range computes
    // them again.
    if (ops.end == program_.ops.size() || Computes(ops, step.wanted.value)) {
        reading_.NoteBrought({}, 0);
    }
    bool too_long = false;
    if (probe_) {
        WEFT_ASSIGN(Recording once, recordings_.Make(key));
        return RunStages(once, 0, &too_long);
    }
    backoff_.CountStep();
    const Status status = trains() ? RunPass(key, &too_long) : RunKept(key, &too_long);
    if (too_long) recordings_.Drop(key);
    if (status.ok() && key.work.wanted.value != program::kNoValue) {
        reading_.NoteBrought(key.work.wanted, shape_.outputs);
    }
    return status;
}

Status GpuExecutable::RunKept(const RecordingKey& key, bool* too_long) {
    WEFT_ASSIGN(Recording* const recording, recordings_.Get(key));
    return RunStages(*recording, 0, too_long);
}

// Passes seldom repeat a shape, so the device starts while the rest is recorded.
Status GpuExecutable::RunPass(const RecordingKey& key, bool* too_long) {
    if (Recording* const kept = recordings_.Find(key)) return RunStages(*kept, 0, too_long);
    WEFT_TRY(BeginStages(FirstRun::kYes));
    return recordings_.MakeAndRun(key, [&](const Stage& stage) -> Status {
        WEFT_TRY(SubmitStage(stage, too_long));
        return EndStage(stage, too_long);
    });
}

bool GpuExecutable::Exchanges() const {
    const HostSignal* const signal = context_->signal.get();
    if (signal == nullptr || !signal->works() || tracing_ || backoff_.waits()) return false;
    const bool asked = options_.device_sum == DeviceSum::kSpin ||
                       (options_.device_sum != DeviceSum::kSplit &&
                        signal->exchange_us() < signal->submission_us());
    return asked && shape_.rows <= kMatvecRows && !shape_.streams;
}

Status GpuExecutable::CopyPages() {
    const auto count = static_cast<int64_t>(step_->copies.size());
    if (buffers_.caches().empty()) return {};
    WEFT_ASSIGN(const std::vector<Dispatch> dispatches,
                lowering_.LowerAlone(shape_, [&](Emitter& emitter) {
                    return LowerPageCopies(emitter, buffers_.caches(), count);
                }));
    WEFT_ASSIGN(const auto commands, RecordAlone(gpu_, dispatches));
    return RunAlone(gpu_, *commands, budget_.DeadlineMs(0));
}

// With a probe or tracing, ops are not fused.
RecordingKey GpuExecutable::KeyOf(const Step& step, const OpRange& ops) const {
    const bool clock = gpu_.description().timestamp_ns > 0;
    const bool each_op = probe_ != nullptr || (tracing_ && !clock);
    RecordingKey key{shape_, {.ops = ops, .slot = slot_}, {each_op, tracing_, clock}};
    key.options.beside = options_.beside && !IsUpdate(ops) && !probe_ && !tracing_;
    if (!in_parts_) key.options.peers = peers_.get();
    if (probe_ || tracing_ || trains()) return key;
    key.work.fusion = &fusion_;
    key.work.wanted = WantedOf(step, key.work.ops);
    if (Exchanges()) key.options.signal = context_->signal.get();
    return key;
}

bool GpuExecutable::Computes(const OpRange& ops, program::ValueId value) const {
    const auto range = std::span(program_.ops).subspan(ops.begin, ops.end - ops.begin);
    return std::ranges::any_of(range, [&](const program::Op& op) {
        return std::ranges::find(op.outputs, value) != op.outputs.end();
    });
}

// The part of step.wanted that these ops can copy to the host: a few rows of a value that they
// compute. The top count is rounded up, so that steps with slightly different counts share a
// recording.
WantedRows GpuExecutable::WantedOf(const Step& step, const OpRange& ops) const {
    WantedRows wanted = step.wanted;
    if (wanted.value == program::kNoValue || shape_.outputs == 0) return {};
    const program::Shape& shape = program_.value(wanted.value).shape;
    const bool of_outputs = shape.rank == 2 && shape[0] == program::kOutputs;
    if (!Computes(ops, wanted.value) || !of_outputs || !buffers_.InArena(wanted.value)) return {};
    const uint64_t bytes = uint64_t{sizeof(float)} * static_cast<uint64_t>(shape_.outputs) *
                           static_cast<uint64_t>(shape[1]);
    wanted.whole = wanted.whole && bytes <= buffers_.whole_bytes();
    const bool top =
        wanted.top > 0 && wanted.top <= Buffers::kMostTop && wanted.columns <= shape[1];
    const auto rounded = std::bit_ceil(static_cast<uint32_t>(std::max(wanted.top, 1)));
    wanted.top = top ? static_cast<int32_t>(std::min<int64_t>(rounded, wanted.columns)) : 0;
    if (!top) wanted.columns = 0;
    return top || wanted.whole ? wanted : WantedRows{};
}

// ---- Reading ------------------------------------------------------------------------------------

Status GpuExecutable::Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) {
    if (!broken_.ok()) return broken_;
    if (reading_.ReadBrought(id, static_cast<uint64_t>(first_byte), out)) return {};
    const ReadPart part{id, first_byte, out};
    return ReadAll({&part, 1});
}

Status GpuExecutable::ReadAll(std::span<const ReadPart> parts) {
    if (!broken_.ok()) return broken_;
    WEFT_TRY(Allocate());
    if (uploads_.exchange(false)) WEFT_TRY(uploader_.Finish());
    for (const ReadPart& part : parts) {
        CheckBytes(program_.value(part.id), options_, part.first_byte, part.out.size());
    }
    return reading_.Read(parts, slot_, budget_.DeadlineMs(0));
}

// The device is idle, because Run waits for it.
Status GpuExecutable::WriteAll(std::span<const WritePart> parts) {
    if (!broken_.ok()) return broken_;
    WEFT_TRY(Allocate());
    uploads_ = true;
    constexpr uint64_t kMost = Buffers::kReadBytes;
    std::vector<Uploader::Range> ranges;
    std::vector<const std::byte*> from;
    uint64_t bytes = 0;
    const auto put = [&]() -> Status {
        if (ranges.empty()) return {};
        const Status status = uploader_.Put(ranges, [&](std::span<std::byte* const> to) {
            for (size_t i = 0; i < to.size(); ++i) std::memcpy(to[i], from[i], ranges[i].bytes);
        });
        ranges.clear();
        from.clear();
        bytes = 0;
        return status;
    };
    for (const WritePart& part : parts) {
        CheckBytes(program_.value(part.id), options_, part.first_byte, part.bytes.size());
        const Spot to = buffers_.At(part.id, 0);
        for (uint64_t at = 0; at < part.bytes.size();) {
            const uint64_t count = std::min<uint64_t>(kMost - bytes, part.bytes.size() - at);
            ranges.push_back(
                {to.buffer, to.offset + static_cast<uint64_t>(part.first_byte) + at, count});
            from.push_back(part.bytes.data() + at);
            bytes += count;
            at += count;
            if (bytes == kMost) WEFT_TRY(put());
        }
    }
    return put();
}

Status GpuExecutable::ZeroFill(program::Pool pool) {
    if (!broken_.ok()) return broken_;
    WEFT_TRY(Allocate());
    WEFT_ASSIGN(const auto commands, gpu_.Record());
    commands->Barrier();
    for (const gpu::Buffer& buffer : buffers_.Pool(pool).buffers()) {
        commands->Fill(buffer, 0, buffer.size_bytes(), 0);
    }
    WEFT_TRY(commands->End());
    return RunAlone(gpu_, *commands, budget_.DeadlineMs(0));
}

namespace {

// Host memory that a copy leaves to other users.
constexpr uint64_t kHostSlackBytes = uint64_t{256} << 20;
// Bytes that are copied before the free memory is looked at again: other ranks of the host copy at
// the same time.
constexpr uint64_t kCopiedBytes = uint64_t{32} << 20;

// Copies of values, by ValueId.
class CopiedValues final : public HostSnapshot {
  public:
    std::map<program::ValueId, std::vector<std::byte>> values;
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        const std::vector<std::byte>& value = values.at(id);
        WEFT_CHECK(static_cast<size_t>(first_byte) + out.size() <= value.size());
        if (!out.empty()) std::memcpy(out.data(), value.data() + first_byte, out.size());
        return {};
    }
};

// Whether the host has memory for a copy of `bytes` of the device `who`. Errors: kOutOfMemory.
Status CheckHostMemory(const std::string& who, uint64_t bytes) {
    const uint64_t free = AvailableMemoryBytes();
    if (bytes + kHostSlackBytes <= free) return {};
    return MakeError(ErrorCode::kOutOfMemory,
                     "a copy of the data on {} needs {} of host memory, but {} are free", who,
                     BytesText(bytes), BytesText(free));
}

}  // namespace

Result<std::unique_ptr<HostSnapshot>> GpuExecutable::Snapshot(
    std::span<const program::ValueId> ids) {
    const auto bytes_of = [&](program::ValueId id) {
        const program::Value& value = program_.value(id);
        return static_cast<uint64_t>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
    };
    uint64_t needed = 0, unseen = kCopiedBytes;
    for (const program::ValueId id : ids) needed += bytes_of(id);
    auto snapshot = std::make_unique<CopiedValues>();
    for (const program::ValueId id : ids) {
        std::vector<std::byte>& bytes = snapshot->values[id];
        const uint64_t size = bytes_of(id);
        bytes.reserve(size);
        while (bytes.size() < size) {
            if (unseen >= kCopiedBytes) {
                WEFT_TRY(CheckHostMemory(context_->Who(), needed));
                unseen = 0;
            }
            const uint64_t at = bytes.size(), count = std::min(size - at, kCopiedBytes);
            bytes.resize(at + count);
            WEFT_TRY(Read(id, static_cast<int64_t>(at), std::span(bytes).subspan(at)));
            unseen += count;
            needed -= count;
        }
    }
    return std::unique_ptr<HostSnapshot>(std::move(snapshot));
}

Status GpuExecutable::ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                               std::span<Candidate> out) {
    if (!broken_.ok()) return broken_;
    return reading_.ReadTopK(id, slot_, row, columns, out, budget_.DeadlineMs(0));
}

Result<std::unique_ptr<Executable>> CompileForVulkan(program::ChunkedProgram program,
                                                     const CompileOptions& options,
                                                     std::shared_ptr<Context> context,
                                                     const MemoryPool& pool) {
    auto executable =
        std::make_unique<GpuExecutable>(std::move(program), options, std::move(context));
    WEFT_TRY(executable->Prepare(pool));
    return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace weft::backend::on_gpu
