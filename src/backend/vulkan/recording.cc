#include "backend/vulkan/recording.h"

#include <algorithm>
#include <array>
#include <utility>

#include "program/timeline.h"

namespace weft::backend::vulkan {

// Costs are those of one sequence that has as many positions as the longest of the step.
Recorder::Recorder(const program::Program& program, const Buffers& buffers, Lowering& lowering,
                   gpu::Device& device, const Pace& pace, const StepShape& shape,
                   const RecordOptions& options)
    : program_(program),
      buffers_(buffers),
      lowering_(lowering),
      device_(device),
      pace_(pace),
      shape_(shape),
      options_(options),
      costs_(program::Cost(program, shape.rows, shape.outputs,
                           std::max(0, shape.positions - shape.rows))) {}

Result<Recording> Recorder::Record(const StepWork& work) {
    const OpRange& range = work.ops;
    recording_.slowness = pace_.slowness();
    lowering_.SetGuarded(options_.gate != nullptr);
    auto lowered = lowering_.LowerStep(shape_, work);
    lowering_.SetGuarded(false);
    WEFT_ASSIGN(const std::vector<Dispatch> all, std::move(lowered));
    auto next = all.begin();
    for (size_t i = range.begin; i < range.end; ++i) {
        const program::Op& op = program_.ops[i];
        if (IsLeftOut(program_, op, shape_)) continue;
        if (program::IsTransfer(op.kind())) {
            const bool exchanges = options_.gate != nullptr && CanExchange(program_, op, shape_);
            const bool later = next != all.end() && next->sum == static_cast<int32_t>(i);
            if (!later) WEFT_TRY(exchanges ? RecordExchange(i) : RecordTransfer(i));
            continue;
        }
        if (work.fusion != nullptr && work.fusion->Moves(i)) {
            moved_estimate_ += pace_.Estimate(costs_[i]);
            ++moved_;
            continue;
        }
        const auto end = std::find_if(
            next, all.end(), [&](const Dispatch& d) { return d.op != static_cast<int32_t>(i); });
        WEFT_TRY(RecordOp(i, {next, end}));
        next = end;
    }
    if (next != all.end()) {
        WEFT_TRY(Open(static_cast<int32_t>(range.end) - 1));
        Run({next, all.end()});
    }
    if (work.wanted.whole) WEFT_TRY(BringRows(work.wanted.value, range));
    WEFT_TRY(Close());
    recording_.stages.push_back(std::move(stage_));
    return std::move(recording_);
}

Status Recorder::RecordOp(size_t op, std::span<const Dispatch> dispatches) {
    const auto number = static_cast<int32_t>(op);
    const double estimate = pace_.Estimate(costs_[op]) + std::exchange(moved_estimate_, 0);
    const auto count_parted =
        std::ranges::count_if(dispatches, [](const Dispatch& d) { return d.MostParts() > 1; });
    const uint32_t parts = count_parted == 0 ? 1 : pace_.PartsOf(estimate);
    const double first = parts == 1 ? estimate : 0;
    WEFT_TRY(MakeRoom(first));
    WEFT_TRY(Open(number));
    open_.divides = open_.divides || open_.ops > 0 || count_parted > 0;
    open_.estimate += first;
    for (const Dispatch& d : dispatches) {
        if (parts == 1 || d.MostParts() == 1) {
            Run({&d, 1});
        } else {
            WEFT_TRY(RunInParts(number, d, parts, estimate / static_cast<double>(count_parted)));
        }
    }
    open_.last_op = number;
    open_.ops += 1 + std::exchange(moved_, 0);
    NoteTimeOf(number);
    return options_.each_op ? CloseToShow(number) : Status();
}

// Closes what is open where so much more does not fit.
Status Recorder::MakeRoom(double estimate) {
    if (open_.commands == nullptr) return {};
    const bool full = options_.trace && open_.timed.size() + 2 >= gpu::kMostTimes;
    const bool fits = open_.estimate == 0 || pace_.Fits(open_.estimate, estimate);
    recording_.cut = recording_.cut || !fits;
    return full || !fits ? Close() : Status();
}

// Each part ends a submission, but for the last, which others may follow.
Status Recorder::RunInParts(int32_t op, const Dispatch& dispatch, uint32_t parts, double estimate) {
    const uint32_t count = std::min(parts, dispatch.MostParts());
    const double each = estimate / count;
    recording_.cut = true;
    for (uint32_t i = 0; i < count; ++i) {
        if (i > 0) {
            NoteTimeOf(op);
            WEFT_TRY(Close());
        }
        WEFT_TRY(MakeRoom(each));
        WEFT_TRY(Open(op));
        open_.last_op = op;
        open_.divides = true;
        open_.estimate += each;
        Run(dispatch, dispatch.Part(i, count));
    }
    return {};
}

// For traces: work of the op ends here.
void Recorder::NoteTimeOf(int32_t op) {
    if (!options_.trace) return;
    open_.timed.push_back(op);
    if (options_.clock) open_.commands->Time(static_cast<uint32_t>(open_.timed.size()));
}

Status Recorder::BringRows(program::ValueId id, const OpRange& range) {
    WEFT_TRY(Open(static_cast<int32_t>(range.end) - 1));
    Copy(buffers_.arena(), buffers_.ArenaOffset(id), buffers_.wanted(), Buffers::kTopBytes,
         OperandBytes(id));
    return {};
}

void Recorder::Run(std::span<const Dispatch> dispatches) {
    for (const Dispatch& d : dispatches) Run(d, d.Part(0, 1));
}

void Recorder::Run(const Dispatch& dispatch, const gpu::Groups& groups) {
    if (dispatch.sum >= 0) return RunWithSum(dispatch);
    Touch(dispatch.reads, dispatch.writes);
    open_.commands->Run(*dispatch.kernel, std::span(dispatch.args).first(dispatch.args_bytes),
                        groups);
    ++recording_.dispatches;
}

Status Recorder::CloseToShow(int32_t op) {
    open_.shows = op;
    return Close();
}

// What other ranks get goes to memory of the host at the end of a stage; what comes of them is
// taken up at the beginning of the next.
Status Recorder::RecordTransfer(size_t op) {
    const program::Op& transfer = program_.ops[op];
    const auto number = static_cast<int32_t>(op);
    if (!transfer.inputs.empty()) {
        const program::ValueId x = transfer.inputs[0];
        WEFT_TRY(Open(number));
        Copy(buffers_.arena(), buffers_.ArenaOffset(x), buffers_.transfers(), buffers_.InOffset(),
             OperandBytes(x));
    }
    WEFT_TRY(Close());
    stage_.transfer = number;
    recording_.stages.push_back(std::exchange(stage_, {}));
    if (transfer.outputs.empty()) return {};
    const program::ValueId y = transfer.outputs[0];
    WEFT_TRY(Open(number));
    Copy(buffers_.transfers(), buffers_.OutOffset(), buffers_.arena(), buffers_.ArenaOffset(y),
         OperandBytes(y));
    return options_.each_op ? CloseToShow(number) : Status();
}

Gate::Exchange Recorder::ExchangeOf(int32_t op) {
    const program::Op& sum = program_.ops[static_cast<size_t>(op)];
    const uint64_t host = buffers_.transfers().address();
    stage_.exchanged.push_back(op);
    open_.waits = true;
    return {buffers_.Address(sum.inputs[0]), host + buffers_.ExchangeOffset(),
            buffers_.Address(sum.outputs[0]),
            static_cast<uint32_t>(OperandBytes(sum.inputs[0]) / sizeof(float)),
            static_cast<uint32_t>(stage_.exchanged.size())};
}

Status Recorder::RecordExchange(size_t op) {
    const auto number = static_cast<int32_t>(op);
    WEFT_TRY(Open(number));
    options_.gate->Record(*open_.commands, ExchangeOf(number));
    NoteExchange();
    open_.last_op = number;
    return {};
}

void Recorder::RunWithSum(const Dispatch& dispatch) {
    std::array<std::byte, gpu::kMostArgsBytes> args = dispatch.args;
    options_.gate->Record(*open_.commands, ExchangeOf(dispatch.sum), *dispatch.kernel,
                          std::span(args).first(dispatch.args_bytes));
    NoteExchange();
}

// It has a barrier before and behind it.
void Recorder::NoteExchange() {
    hazards_.Clear();
    ++recording_.dispatches;
    recording_.barriers += 2;
}

// What was submitted before may have written anything.
Status Recorder::Open(int32_t op) {
    if (open_.commands != nullptr) return {};
    WEFT_ASSIGN(open_.commands, device_.Record());
    open_.first_op = open_.last_op = op;
    open_.commands->Barrier();
    ++recording_.barriers;
    if (options_.trace && options_.clock) open_.commands->Time(0);
    const bool first = stage_.submissions.empty();
    if (first && options_.gate != nullptr) options_.gate->RecordBegin(*open_.commands);
    hazards_.Clear();
    return {};
}

Status Recorder::Close() {
    if (open_.commands == nullptr) return {};
    WEFT_TRY(open_.commands->End());
    stage_.submissions.push_back(std::exchange(open_, {}));
    return {};
}

void Recorder::Touch(std::span<const Region> reads, std::span<const Region> writes) {
    if (!hazards_.Touch(reads, writes)) return;
    open_.commands->Barrier();
    ++recording_.barriers;
}

void Recorder::Copy(const gpu::Buffer& from, uint64_t from_byte, const gpu::Buffer& to,
                    uint64_t to_byte, uint64_t bytes) {
    const Region reads{from.address() + from_byte, bytes}, writes{to.address() + to_byte, bytes};
    Touch({&reads, 1}, {&writes, 1});
    open_.commands->Copy(from, from_byte, to, to_byte, bytes);
}

uint64_t Recorder::OperandBytes(program::ValueId id) const {
    const program::Value& value = program_.value(id);
    const int64_t count = value.shape.Elements(shape_.rows, shape_.outputs);
    return static_cast<uint64_t>(RowBytes(value.dtype, count));
}

}  // namespace weft::backend::vulkan
