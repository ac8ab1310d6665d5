#include "backend/gpu/record/recording.h"

#include <algorithm>
#include <array>
#include <utility>

#include "program/communication.h"
#include "program/placement.h"

namespace weft::backend::on_gpu {

bool IsInPlace(const program::Op& transfer) {
    return !transfer.inputs.empty() && !transfer.outputs.empty() &&
           transfer.inputs[0] == transfer.outputs[0];
}

bool ReadsOutput(const program::Op& transfer) {
    if (transfer.outputs.empty()) return false;
    const auto* shares = transfer.attributes.If<program::ZeroReduceScatter>();
    return IsInPlace(transfer) || (shares != nullptr && shares->adds);
}

bool IsPeerSum(const PeerSums* peers, const program::Program& program, const program::Op& op,
               const StepShape& shape) {
    if (peers == nullptr) return false;
    const std::optional<uint64_t> bytes = FloatSumBytes(program, op, shape);
    return bytes && peers->Takes(*bytes);
}

// Costs assume one sequence that has as many positions as the step's longest sequence.
Recorder::Recorder(const program::Program& program, const Buffers& buffers, Lowering& lowering,
                   gpu::Device& device, const SubmissionBudget& budget, const StepShape& shape,
                   const RecordOptions& options)
    : program_(program),
      buffers_(buffers),
      lowering_(lowering),
      device_(device),
      budget_(budget),
      shape_(shape),
      options_(options),
      costs_(program::Cost(program, shape.rows, shape.outputs,
                           std::max(0, shape.positions - shape.rows))) {}

// If stages run while they are recorded, ops are submitted before more ops are lowered, which may
// grow scratch memory.
Result<Recording> Recorder::Record(const StepWork& work, const RunStage& run) {
    constexpr size_t kOpsAtOnce = 64;
    slot_ = work.slot;
    run_ = run;
    recording_.slowness = budget_.slowness();
    StepWork part = work;
    while (run_ && work.ops.end - part.ops.begin > kOpsAtOnce) {
        part.ops.end = part.ops.begin + kOpsAtOnce;
        part.wanted = {};
        WEFT_TRY(RecordOps(part));
        WEFT_TRY(Close());
        stage_.goes_on = true;
        WEFT_TRY(EndStage());
        part.ops.begin = part.ops.end;
    }
    part.ops.end = work.ops.end;
    part.wanted = work.wanted;
    WEFT_TRY(RecordOps(part));
    WEFT_TRY(Collect(pending_.size()));
    if (work.wanted.whole) WEFT_TRY(BringRows(work.wanted.value, work.ops));
    WEFT_TRY(Close());
    WEFT_TRY(EndStage());
    return std::move(recording_);
}

Status Recorder::RecordOps(const StepWork& work) {
    const OpRange& range = work.ops;
    lowering_.SetGuard(guard());
    auto lowered = lowering_.LowerStep(shape_, work);
    lowering_.SetGuard(Guard::kNone);
    WEFT_ASSIGN(const std::vector<Dispatch> all, std::move(lowered));
    auto next = all.begin();
    for (size_t i = range.begin; i < range.end; ++i) {
        const program::Op& op = program_.ops[i];
        if (!buffers_.Runs(i, shape_) || IsLeftOut(program_, op, shape_)) continue;
        NoteStreamed(i, work.fusion);
        WEFT_TRY(CollectFor(op));
        if (program::IsToHost(op)) {
            handed_.push_back({static_cast<int32_t>(i), handed_bytes_, -1});
            handed_bytes_ += Buffers::HandedBytes(OperandBytes(op.inputs[0]));
            continue;
        }
        if (!handed_.empty() && !program::IsFromHost(op)) WEFT_TRY(HandBefore(i, range));
        if (program::IsFromHost(op) && posted_ == static_cast<int32_t>(i)) {
            WEFT_TRY(TakeBack(i));
            continue;
        }
        if (program::IsFromHost(op) && CanHandOver(i)) {
            WEFT_TRY(RecordHandOver(i));
            continue;
        }
        if (program::IsCommunication(op.kind())) {
            const bool exchanges = options_.signal != nullptr && CanExchange(program_, op, shape_);
            const bool later = next != all.end() && next->sum == static_cast<int32_t>(i);
            if (!later) WEFT_TRY(exchanges ? RecordExchange(i) : RecordTransfer(i));
            continue;
        }
        if (work.fusion != nullptr && work.fusion->Moves(i)) {
            moved_estimate_ += budget_.Estimate(costs_[i]);
            ++moved_;
            continue;
        }
        const auto end = std::find_if(
            next, all.end(), [&](const Dispatch& d) { return d.op != static_cast<int32_t>(i); });
        WEFT_TRY(AwaitStreamed());
        WEFT_TRY(RecordOp(i, {next, end}));
        WEFT_TRY(EndStreamed());
        next = end;
    }
    if (next == all.end()) return {};
    WEFT_TRY(Open(static_cast<int32_t>(range.end) - 1));
    Run({next, all.end()});
    return {};
}

Status Recorder::EndStage() {
    recording_.stages.push_back(std::exchange(stage_, {}));
    return run_ ? run_(recording_.stages.back()) : Status();
}

// ---- Streamed weights ---------------------------------------------------------------------------

void Recorder::NoteStreamed(size_t op, const Fusion* fusion) {
    const bool moves = fusion != nullptr && fusion->Moves(op);
    if (fusion != nullptr && fusion->RunAt(op) != nullptr) moved_weights_ = false;
    for (const program::ValueId id : program_.ops[op].inputs) {
        const auto weights = static_cast<size_t>(buffers_.StreamedIndex(id) + 1);
        if (weights == 0) continue;
        if (wanted_weights_ == 0) freed_weights_ = brought_weights_ = weights - 1;
        wanted_weights_ = std::max(wanted_weights_, weights);
        moved_weights_ = moved_weights_ || moves;
    }
}

// Begins a stage, before which the host brings the weights that the next op reads.
Status Recorder::AwaitStreamed() {
    if (wanted_weights_ == brought_weights_) return {};
    WEFT_TRY(Close());
    stage_.goes_on = true;
    WEFT_TRY(EndStage());
    stage_.brings = {brought_weights_, wanted_weights_};
    brought_weights_ = wanted_weights_;
    return {};
}

// Ends the stage, so that the weights' places are free as soon as the op is done.
Status Recorder::EndStreamed() {
    if (brought_weights_ == freed_weights_ || moved_weights_) return {};
    WEFT_TRY(Close());
    stage_.goes_on = true;
    stage_.frees = {freed_weights_, brought_weights_};
    freed_weights_ = brought_weights_;
    return EndStage();
}

// An op of many dispatches, such as all products of MuonUpdate: each has an equal share of the op's
// time, and a submission may end after each.
Status Recorder::RunMany(int32_t op, std::span<const Dispatch> dispatches, double estimate) {
    const double share = estimate / static_cast<double>(dispatches.size());
    const uint32_t parts = budget_.PartsOf(share);
    for (const Dispatch& d : dispatches) {
        if (!HasSpace(share)) NoteTimeOf(op);
        WEFT_TRY(RunInParts(op, d, parts, share));
    }
    return {};
}

Status Recorder::RecordOp(size_t op, std::span<const Dispatch> dispatches) {
    constexpr size_t kMany = 16;
    const auto number = static_cast<int32_t>(op);
    const double estimate = budget_.Estimate(costs_[op]) + std::exchange(moved_estimate_, 0);
    const auto count_parted =
        std::ranges::count_if(dispatches, [](const Dispatch& d) { return d.MostParts() > 1; });
    const bool many = dispatches.size() > kMany;
    const uint32_t parts = count_parted == 0 ? 1 : budget_.PartsOf(estimate);
    const double first = parts == 1 && !many ? estimate : 0;
    WEFT_TRY(MakeSpace(first));
    WEFT_TRY(Open(number));
    open_.divides = open_.divides || open_.ops > 0 || count_parted > 0;
    open_.estimate += first;
    if (many) WEFT_TRY(RunMany(number, dispatches, estimate));
    for (const Dispatch& d : many ? std::span<const Dispatch>() : dispatches) {
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

// Closes the open submission if this estimate does not fit.
Status Recorder::MakeSpace(double estimate) {
    if (open_.commands == nullptr) return {};
    const bool full = options_.trace && open_.timed.size() + 2 >= gpu::kMostTimes;
    const bool fits = HasSpace(estimate);
    recording_.cut = recording_.cut || !fits;
    return full || !fits ? Close() : Status();
}

bool Recorder::HasSpace(double estimate) const {
    return open_.estimate == 0 || budget_.Fits(open_.estimate, estimate);
}

// Each part ends a submission, except the last part, which other ops may follow.
Status Recorder::RunInParts(int32_t op, const Dispatch& dispatch, uint32_t parts, double estimate) {
    const uint32_t count = std::min(parts, dispatch.MostParts());
    const double each = estimate / count;
    recording_.cut = recording_.cut || count > 1;
    for (uint32_t i = 0; i < count; ++i) {
        if (i > 0) {
            NoteTimeOf(op);
            WEFT_TRY(Close());
        }
        WEFT_TRY(MakeSpace(each));
        WEFT_TRY(Open(op));
        open_.last_op = op;
        open_.divides = true;
        open_.estimate += each;
        Run(dispatch, dispatch.Part(i, count));
    }
    return {};
}

// Marks, for traces, the end of the op's work.
void Recorder::NoteTimeOf(int32_t op) {
    if (!options_.trace) return;
    open_.timed.push_back(op);
    if (options_.clock) open_.commands->Time(static_cast<uint32_t>(open_.timed.size()));
}

Status Recorder::BringRows(program::ValueId id, const OpRange& range) {
    WEFT_TRY(Open(static_cast<int32_t>(range.end) - 1));
    Copy(At(id), {&buffers_.wanted(), buffers_.top_bytes()}, OperandBytes(id));
    return {};
}

void Recorder::Run(std::span<const Dispatch> dispatches) {
    for (const Dispatch& d : dispatches) Run(d, d.Part(0, 1));
}

void Recorder::Run(const Dispatch& dispatch, const gpu::WorkgroupCounts& groups) {
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

// Copies operands for other ranks to host memory at the end of a stage. Received results are copied
// to the device at the beginning of the next stage, or of a later one.
Status Recorder::RecordTransfer(size_t op) {
    const program::Op& transfer = program_.ops[op];
    const auto number = static_cast<int32_t>(op);
    const bool beside = options_.beside && program::MayOverlap(transfer.kind());
    const bool by_peers = IsPeerSum(options_.peers, program_, transfer, shape_);
    const int half = by_peers ? NextHalf() : 0;
    OperandPlace place;
    WEFT_TRY(PlaceTransfer(beside, place));
    WEFT_TRY(by_peers ? WriteWindow(number, half) : BringOut(number, place));
    WEFT_TRY(CopyHanded(number));
    WEFT_TRY(Close());
    stage_.transfer = number;
    stage_.place = place;
    stage_.beside = beside;
    WEFT_TRY(EndStage());
    if (transfer.outputs.empty()) return {};
    if (beside) {
        pending_.push_back({number, place, RegionOf(transfer.outputs[0])});
        return {};
    }
    WEFT_TRY(by_peers ? SumWindows(number, half) : BringIn(number, place));
    return options_.each_op ? CloseToShow(number) : Status();
}

Status Recorder::BringOut(int32_t op, const OperandPlace& place) {
    const program::Op& transfer = program_.ops[static_cast<size_t>(op)];
    if (!transfer.inputs.empty() && !IsInPlace(transfer)) {
        WEFT_TRY(Open(op));
        const program::ValueId x = transfer.inputs[0];
        Copy(At(x), place.in, OperandBytes(x));
    }
    if (ReadsOutput(transfer)) {
        WEFT_TRY(Open(op));
        const program::ValueId y = transfer.outputs[0];
        Copy(At(y), place.out, OperandBytes(y));
    }
    return {};
}

// A kernel writes the window, and not a copy, so that an abandoned submission does not overwrite
// what other ranks still read (guard.glsl).
Status Recorder::WriteWindow(int32_t op, int half) {
    const program::ValueId x = program_.ops[static_cast<size_t>(op)].inputs[0];
    WEFT_TRY(Open(op));
    open_.commands->Barrier();
    options_.peers->RecordWrite(*open_.commands, At(x).address(), half,
                                static_cast<uint32_t>(OperandBytes(x) / sizeof(float)), guard());
    ++recording_.dispatches;
    ++recording_.barriers;
    return {};
}

Status Recorder::SumWindows(int32_t op, int half) {
    const program::ValueId y = program_.ops[static_cast<size_t>(op)].outputs[0];
    WEFT_TRY(Open(op));
    options_.peers->RecordSum(*open_.commands, At(y).address(), half,
                              static_cast<uint32_t>(OperandBytes(y) / sizeof(float)), guard());
    open_.commands->Barrier();
    ++recording_.dispatches;
    ++recording_.barriers;
    hazards_.Clear();
    return {};
}

// A barrier for all later ops, because some kernels do not declare the weights that they read.
Status Recorder::BringIn(int32_t op, const OperandPlace& place) {
    const program::ValueId y = program_.ops[static_cast<size_t>(op)].outputs[0];
    WEFT_TRY(Open(op));
    Copy(place.out, At(y), OperandBytes(y));
    open_.commands->Barrier();
    ++recording_.barriers;
    hazards_.Clear();
    return {};
}

// ---- Transfers beside submissions ---------------------------------------------------------------

Status Recorder::PlaceTransfer(bool beside, OperandPlace& place) {
    place = buffers_.PlaceOfTransfer();
    if (options_.in_parts) place = buffers_.OverlapPlace(slot_ - 1);
    if (!beside) return {};
    if (pending_.size() == Buffers::kOverlapPlaces) WEFT_TRY(Collect(1));
    place = buffers_.OverlapPlace(next_place_);
    next_place_ = (next_place_ + 1) % Buffers::kOverlapPlaces;
    return {};
}

// Collects the transfers whose results the op touches.
Status Recorder::CollectFor(const program::Op& op) {
    size_t count = 0;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (const program::ValueId id : *ids) {
            if (pending_.empty() || !buffers_.Has(id)) continue;
            const Region touched = RegionOf(id);
            for (size_t i = count; i < pending_.size(); ++i) {
                if (pending_[i].result.Overlaps(touched)) count = i + 1;
            }
        }
    }
    return Collect(count);
}

// Collects the first `count` transfers. Transfers end in order.
Status Recorder::Collect(size_t count) {
    if (count == 0) return {};
    WEFT_TRY(Close());
    stage_.collects = pending_[count - 1].op;
    WEFT_TRY(EndStage());
    for (size_t i = 0; i < count; ++i) WEFT_TRY(BringIn(pending_[i].op, pending_[i].place));
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
    return {};
}

// ---- Sums in the midst of submissions -----------------------------------------------------------

HostSignal::Exchange Recorder::ExchangeOf(int32_t op) {
    const program::Op& sum = program_.ops[static_cast<size_t>(op)];
    stage_.exchanged.push_back(op);
    open_.waits = true;
    HostSignal::Exchange exchange{
        At(sum.inputs[0]).address(), buffers_.Exchange().address(), At(sum.outputs[0]).address(),
        static_cast<uint32_t>(OperandBytes(sum.inputs[0]) / sizeof(float)),
        static_cast<uint32_t>(stage_.exchanged.size())};
    if (!IsPeerSum(options_.peers, program_, sum, shape_)) return exchange;
    const int half = NextHalf();
    exchange.to_host = options_.peers->Window(half);
    exchange.index |= options_.peers->IndexBits(half);
    return exchange;
}

Status Recorder::RecordExchange(size_t op) {
    const auto number = static_cast<int32_t>(op);
    WEFT_TRY(Open(number));
    options_.signal->Record(*open_.commands, ExchangeOf(number));
    NoteExchange();
    open_.last_op = number;
    return {};
}

void Recorder::RunWithSum(const Dispatch& dispatch) {
    std::array<std::byte, gpu::kMostArgsBytes> args = dispatch.args;
    options_.signal->Record(*open_.commands, ExchangeOf(dispatch.sum), *dispatch.kernel,
                            std::span(args).first(dispatch.args_bytes));
    NoteExchange();
}

// ---- Values for the host's processor ------------------------------------------------------------

// Whether the host can run its ops while a submission waits: it returns as many floats as one of
// the values that it gets.
bool Recorder::CanHandOver(size_t op) const {
    const program::ValueId y = program_.ops[op].outputs[0];
    const uint64_t bytes = OperandBytes(y);
    if (options_.signal == nullptr || handed_.empty() || bytes > HostSignal::kMostBytes ||
        program_.value(y).dtype != DType::kF32) {
        return false;
    }
    return std::ranges::any_of(
        handed_, [&](const Handed& one) { return OperandBytes(InputOf(one)) == bytes; });
}

program::ValueId Recorder::InputOf(const Handed& handed) const {
    return program_.ops[static_cast<size_t>(handed.op)].inputs[0];
}

Status Recorder::RecordHandOver(size_t op) {
    const auto number = static_cast<int32_t>(op);
    WEFT_TRY(Open(number));
    const program::ValueId y = program_.ops[op].outputs[0];
    HostSignal::Exchange exchange;
    open_.commands->Barrier();
    for (const Handed& one : handed_) {
        const program::ValueId x = InputOf(one);
        if (exchange.x != 0 || OperandBytes(x) != OperandBytes(y)) {
            RecordHanded(one);
            continue;
        }
        exchange.x = At(x).address();
        exchange.to_host = buffers_.HandedAt(one.offset).address();
    }
    exchange.y = At(y).address();
    exchange.count = static_cast<uint32_t>(OperandBytes(y) / sizeof(float));
    stage_.exchanged.push_back(number);
    exchange.index = static_cast<uint32_t>(stage_.exchanged.size());
    open_.waits = true;
    options_.signal->Record(*open_.commands, exchange);
    NoteExchange();
    NoteHanded(number);
    open_.last_op = number;
    return {};
}

// Sends the values to the host before an op between them and the run's results: the host computes
// while the device runs this op.
Status Recorder::HandBefore(size_t op, const OpRange& range) {
    const auto takes = [&](size_t i) {
        return program::IsFromHost(program_.ops[i]) && buffers_.Runs(i, shape_) &&
               !IsLeftOut(program_, program_.ops[i], shape_);
    };
    while (op < range.end && !takes(op)) ++op;
    if (op == range.end) return {};
    posted_ = static_cast<int32_t>(op);
    posted_inside_ = CanHandOver(op);
    if (!posted_inside_) {
        WEFT_TRY(CopyHanded(posted_));
        WEFT_TRY(Close());
        stage_.goes_on = stage_.hands = true;
        return EndStage();
    }
    WEFT_TRY(Open(posted_));
    open_.commands->Barrier();
    for (const Handed& one : handed_) RecordHanded(one);
    stage_.exchanged.push_back(posted_);
    options_.signal->RecordPost(*open_.commands, static_cast<uint32_t>(stage_.exchanged.size()));
    NoteExchange();
    NoteHanded(posted_);
    return {};
}

// Records the wait for the results of the run that has its values already.
Status Recorder::TakeBack(size_t op) {
    posted_ = -1;
    if (!posted_inside_) return RecordTransfer(op);
    const auto number = static_cast<int32_t>(op);
    WEFT_CHECK(stage_.exchanged.back() == number);
    WEFT_TRY(Open(number));
    const program::ValueId y = program_.ops[op].outputs[0];
    // (The kernel also writes the present value of y to the host, which nobody reads.)
    HostSignal::Exchange exchange;
    exchange.x = exchange.y = At(y).address();
    exchange.to_host = buffers_.Exchange().address();
    exchange.count = static_cast<uint32_t>(OperandBytes(y) / sizeof(float));
    exchange.index = static_cast<uint32_t>(stage_.exchanged.size());
    open_.waits = true;
    options_.signal->Record(*open_.commands, exchange);
    NoteExchange();
    open_.last_op = number;
    return {};
}

void Recorder::RecordHanded(const Handed& one) {
    const program::ValueId x = InputOf(one);
    options_.signal->RecordHanded(*open_.commands, At(x).address(),
                                  buffers_.HandedAt(one.offset).address(),
                                  static_cast<uint32_t>(OperandBytes(x) / sizeof(float)));
    ++recording_.dispatches;
}

// Copies the values at the end of a stage.
Status Recorder::CopyHanded(int32_t before) {
    for (const Handed& one : handed_) {
        WEFT_TRY(Open(before));
        const program::ValueId x = InputOf(one);
        Copy(At(x), buffers_.HandedAt(one.offset), OperandBytes(x));
    }
    NoteHanded(before);
    return {};
}

void Recorder::NoteHanded(int32_t before) {
    for (Handed& one : handed_) {
        one.before = before;
        stage_.handed.push_back(one);
    }
    handed_.clear();
    handed_bytes_ = 0;
}

// An exchange has a barrier before and after it.
void Recorder::NoteExchange() {
    hazards_.Clear();
    ++recording_.dispatches;
    recording_.barriers += 2;
}

// Earlier submissions may have written anything.
Status Recorder::Open(int32_t op) {
    if (open_.commands != nullptr) return {};
    WEFT_ASSIGN(open_.commands, device_.Record());
    open_.first_op = open_.last_op = op;
    open_.commands->Barrier();
    ++recording_.barriers;
    if (options_.trace && options_.clock) open_.commands->Time(0);
    const bool first = stage_.submissions.empty();
    if (first && options_.signal != nullptr) options_.signal->RecordBegin(*open_.commands);
    hazards_.Clear();
    return {};
}

Status Recorder::Close() {
    if (open_.commands == nullptr) return {};
    {
        const KernelCache::Compiling compiling(lowering_.kernels());
        WEFT_TRY(open_.commands->End());
    }
    stage_.submissions.push_back(std::exchange(open_, {}));
    return {};
}

void Recorder::Touch(std::span<const Region> reads, std::span<const Region> writes) {
    if (!hazards_.Touch(reads, writes)) return;
    open_.commands->Barrier();
    ++recording_.barriers;
}

void Recorder::Copy(const Spot& from, const Spot& to, uint64_t bytes) {
    if (bytes == 0) return;
    const Region reads{from.address(), bytes}, writes{to.address(), bytes};
    Touch({&reads, 1}, {&writes, 1});
    open_.commands->Copy(*from.buffer, from.offset, *to.buffer, to.offset, bytes);
}

uint64_t Recorder::OperandBytes(program::ValueId id) const {
    const program::Value& value = program_.value(id);
    return static_cast<uint64_t>(RowBytes(value.dtype, shape_.ElementsOf(value.shape)));
}

}  // namespace weft::backend::on_gpu
