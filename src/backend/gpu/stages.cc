// Runs the stages of a step on a Vulkan device: submissions one after another, and the host's sums
// within or between them (backend/transfer.h). Reports their times.
#include "backend/gpu/executable.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace weft::backend::on_gpu {
namespace {

// In a step in parts or with streamed weights, a wait shorter than this may have begun after the
// submission had ended.
constexpr int64_t kLeastExactWaitNs = 50'000;

}  // namespace

Status GpuExecutable::RunStages(Recording& recording, size_t first, bool* too_long) {
    WEFT_TRY(BeginStages(recording.ran ? FirstRun::kNo : FirstRun::kYes));
    recording.ran = true;
    if (first == 0 && recording.peer_sums > 0)  // other ranks may still read the last windows
        WEFT_TRY(groups_.tensor->Barrier({"barrier", 0, step_->number}));
    for (size_t i = first; i < recording.stages.size(); ++i) {
        const Stage& stage = recording.stages[i];
        WEFT_TRY(SubmitStage(stage, too_long));
        if (!stage.exchanged.empty()) {
            WEFT_TRY(Exchange(stage, running_.back().number));
            WEFT_TRY(AwaitAll(too_long));
            if (context_->signal->GaveUp() != 0) return GoOnWithout(stage);
            backoff_.NoteExchanged();
        }
        if (!stage.goes_on) WEFT_TRY(BringAhead(recording, i));
        WEFT_TRY(EndStage(stage, too_long));
    }
    return {};
}

Status GpuExecutable::BeginStages(FirstRun first_run) {
    first_run_ = first_run == FirstRun::kYes;
    running_.clear();
    last_end_is_exact_ = true;
    starting_ = handing_ = nullptr;
    hands_early_ = false;
    if (!jobs_.empty()) side_.Wait();  // an earlier run ended with an error
    jobs_.clear();
    return overlap_status_;
}

// Brings the stage's weights, whose places may still be in use.
Status GpuExecutable::BringWeights(const Stage& stage, bool* too_long) {
    for (size_t weight = stage.brings.begin; weight < stage.brings.end; ++weight) {
        if (ring_.Has(weight)) continue;
        while (!MayBring(weight)) WEFT_TRY(AwaitFirst(1, too_long));
        WEFT_TRY(ring_.Bring(weight));
        progress_.fetch_add(1, std::memory_order_relaxed);
    }
    return {};
}

// Brings the weights of the next stage that needs some, as far as their places are free.
Status GpuExecutable::BringAhead(const Recording& recording, size_t stage) {
    while (++stage < recording.stages.size()) {
        const WeightRange& brings = recording.stages[stage].brings;
        for (size_t weight = brings.begin; weight < brings.end; ++weight) {
            if (ring_.Has(weight)) continue;
            if (!MayBring(weight)) return {};
            WEFT_TRY(ring_.Bring(weight));
        }
        if (brings.begin < brings.end) return {};
    }
    return {};
}

// Submits all submissions at once, but with a probe waits after each.
Status GpuExecutable::SubmitStage(const Stage& stage, bool* too_long) {
    WEFT_TRY(BringWeights(stage, too_long));
    if (!stage.exchanged.empty()) {
        context_->signal->Begin(static_cast<uint32_t>(stage.exchanged.size()),
                                peers_ != nullptr && peers_->works() ? peers_->table() : 0);
    }
    if (running_.empty()) times_.BeginStage();
    for (const Submission& submission : stage.submissions) {
        const int64_t now_ns = NowNs();
        const Result<uint64_t> number = gpu_.Submit(*submission.commands);
        if (!number.ok()) {
            context_->hangs = true;
            broken_ = Explain(submission, number.error());  // earlier submissions may still run
            return broken_;
        }
        running_.push_back({&submission, *number, now_ns});
        if (!probe_) continue;
        WEFT_TRY(AwaitAll(too_long));
        if (submission.shows >= 0) WEFT_TRY(ShowToProbe(submission.shows));
    }
    for (size_t weight = stage.frees.begin; weight < stage.frees.end && !running_.empty();
         ++weight) {
        ring_.NoteReader(weight, running_.back().number);
    }
    return {};
}

// Runs the transfer at the end of the stage. The host does not wait while the device has later
// submissions.
Status GpuExecutable::EndStage(const Stage& stage, bool* too_long) {
    WEFT_TRY(StartOverlapped(too_long));
    if (stage.beside) {
        starting_ = &stage;
        starts_behind_ = running_.size();
        return {};
    }
    if (stage.hands) {
        handing_ = &stage;
        hands_behind_ = running_.size();
        hands_early_ = true;
    }
    if (stage.goes_on) return {};
    if (handing_ != nullptr) return RunBeside(stage, too_long);
    if (stage.collects >= 0) return WaitForOverlapped(stage.collects);
    WEFT_TRY(AwaitAll(too_long));
    if (stage.transfer < 0) return {};
    WEFT_TRY(TakeHanded(stage, stage.transfer));
    return Transfer(stage.transfer, stage.place);
}

// The stage's transfer, a run of the host, while the submissions behind handing_ run.
Status GpuExecutable::RunBeside(const Stage& stage, bool* too_long) {
    const Stage& handing = *std::exchange(handing_, nullptr);
    WEFT_TRY(AwaitFirst(std::min(hands_behind_, running_.size()), too_long));
    Status computed = TakeHanded(handing, stage.transfer);
    if (computed.ok()) computed = Transfer(stage.transfer, stage.place);
    const Status done = AwaitAll(too_long);
    return computed.ok() ? done : computed;
}

// Gives the host's processor the values for its next run.
Status GpuExecutable::TakeHanded(const Stage& stage, int32_t before) {
    for (const Handed& one : stage.handed) {
        if (one.before == before) WEFT_TRY(Transfer(one.op, {buffers_.HandedAt(one.offset), {}}));
    }
    return {};
}

// Waits for the first `count` running submissions.
Status GpuExecutable::AwaitFirst(size_t count, bool* too_long) {
    for (; count > 0; --count) {
        const Running run = running_.front();
        running_.pop_front();
        WEFT_TRY(
            Await(*run.submission, run.number, std::max(run.begin_ns, last_end_ns_), too_long));
    }
    return {};
}

// Answers the stage's exchanges one after another as the device reaches them. If the device cancels
// an exchange, its submissions end.
Status GpuExecutable::Exchange(const Stage& stage, uint64_t last) {
    const int64_t deadline_ms = budget_.DeadlineMs(stage.submissions.back().estimate);
    const OperandPlace place{buffers_.Exchange(), buffers_.PlaceOfTransfer().out};
    for (uint32_t i = 0; i < stage.exchanged.size(); ++i) {
        const Result<bool> came = context_->signal->Await(i + 1, last, Deadline::In(deadline_ms));
        if (!came.ok()) {
            context_->hangs = true;
            broken_ = Explain(stage.submissions.back(), came.error());
            return broken_;
        }
        if (!*came && context_->signal->GaveUp() == 0) {
            context_->hangs = true;
            broken_ = MakeError(
                ErrorCode::kPeerLost,
                "{}: a submission ended before its all-reduce {} of {}, without cancelling it",
                context_->Who(), i + 1, stage.exchanged.size());
            return broken_;
        }
        if (!*came) return {};
        Status summed = TakeHanded(stage, stage.exchanged[i]);
        if (summed.ok()) summed = Transfer(stage.exchanged[i], place);
        if (!summed.ok()) {
            // Nothing else may run until the submission has given up and ended.
            if (!gpu_.Wait(last, Deadline::In(deadline_ms)).ok()) context_->hangs = true;
            return summed;
        }
        const program::Op& sum = program_.ops[static_cast<size_t>(stage.exchanged[i])];
        const HostValue result = Operand(sum.outputs[0], place.out);
        context_->signal->Open(
            i + 1, ByPeers(sum) ? std::span<const std::byte>() : std::span(result.bytes()));
    }
    return {};
}

// Resumes the step after an all-reduce that the GPU stopped waiting for: all ops before it are
// done, and the host has the sum.
Status GpuExecutable::GoOnWithout(const Stage& stage) {
    const uint32_t number = context_->signal->GaveUp();
    WEFT_CHECK(number <= stage.exchanged.size());
    const int32_t op = stage.exchanged[number - 1];
    const int steps = backoff_.GiveUp();
    Log(LogLevel::kDebug,
        "{}, step {}: the all-reduce of op {} was slow; the next {} steps use a submission for "
        "each all-reduce",
        context_->Who(), step_->number, op, steps);
    RecordingKey key = KeyOf(*step_, ops_);
    key.options.signal = nullptr;
    WEFT_ASSIGN(Recording* const recording, recordings_.Get(key));
    const auto done = std::ranges::find(recording->stages, op, &Stage::transfer);
    WEFT_CHECK(done != recording->stages.end());
    const auto next = static_cast<size_t>(done - recording->stages.begin()) + 1;
    bool own_too_long = false;
    const Status status = RunStages(*recording, next, &own_too_long);
    if (own_too_long) recordings_.Drop(key);
    return status;
}

// While kernels run for the first time, heartbeats report progress to other ranks. The device's own
// deadline detects a hang.
Status GpuExecutable::WaitFor(uint64_t number, int64_t deadline_ms) {
    std::optional<KernelCache::Compiling> compiling;
    if (first_run_) compiling.emplace(context_->kernels);
    return gpu_.Wait(number, Deadline::In(deadline_ms));
}

Status GpuExecutable::Await(const Submission& submission, uint64_t number, int64_t begin_ns,
                            bool* too_long) {
    const int64_t deadline_ms = budget_.DeadlineMs(submission.estimate);
    const int64_t wait_ns = NowNs();
    const Status status = WaitFor(number, deadline_ms);
    if (!status.ok()) {
        context_->hangs = true;
        broken_ = Explain(submission, status);
        return broken_;
    }
    const int64_t end_ns = last_end_ns_ = NowNs();
    const double seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
    const bool begin_is_exact =
        std::exchange(last_end_is_exact_, !(in_parts_ || shape_.streams || hands_early_) ||
                                              end_ns - wait_ns > kLeastExactWaitNs);
    const bool is_exact = begin_is_exact && last_end_is_exact_;
    if (!submission.waits && is_exact) NoteLength(submission, seconds, too_long);
    // A part of an op also counts as progress, because other ranks wait only for a rank that makes
    // progress.
    progress_.fetch_add(std::max(submission.ops, 1), std::memory_order_relaxed);
    if (tracing_) NoteTimes(submission, begin_ns, end_ns);
    return {};
}

// A submission that took too long is divided the next time, if possible.
void GpuExecutable::NoteLength(const Submission& submission, double seconds, bool* too_long) {
    const double foreseen = submission.estimate * budget_.slowness();
    context_->longest_seconds = std::max(context_->longest_seconds.load(), seconds);
    if (!budget_.Took(submission.estimate, seconds)) return;
    *too_long = *too_long || submission.divides;
    Log(LogLevel::kDebug,
        "{}, step {}: ops {} to {} took {:.3f} s in one submission; the estimate was {:.3f} s",
        context_->Who(), step_->number, submission.first_op, submission.last_op, seconds, foreseen);
}

Status GpuExecutable::Explain(const Submission& submission, Status status) const {
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

HostValue GpuExecutable::Operand(program::ValueId id, const Spot& at) const {
    const program::Value& value = program_.value(id);
    const program::Shape& shape = value.shape;
    const int64_t cols = shape[shape.rank - 1];
    const int64_t rows = shape.rank == 1 || cols == 0 ? 1 : shape_.ElementsOf(shape) / cols;
    return {at.buffer->host() + at.offset, value.dtype, rows, cols};
}

GpuExecutable::HostTransfer GpuExecutable::TransferOf(int32_t number,
                                                      const OperandPlace& place) const {
    HostTransfer transfer;
    transfer.op = &program_.ops[static_cast<size_t>(number)];
    const program::Op& op = *transfer.op;
    if (!op.inputs.empty()) {
        transfer.in = Operand(op.inputs[0], IsInPlace(op) ? place.out : place.in);
    }
    if (!op.outputs.empty()) transfer.out = Operand(op.outputs[0], place.out);
    transfer.groups = groups_;
    const bool of_rows =
        !op.outputs.empty() && program_.value(op.outputs[0]).shape[0] == program::kTokens;
    if (!of_rows) transfer.groups.prompt_rows = {};
    transfer.tag = {program::OpName(op.kind()), number, step_->number};
    // Waits are long, so they sleep at once: a GPU may share its power or its cores with this
    // thread.
    transfer.tag.aside = in_parts_;
    transfer.by_peers = ByPeers(op);
    return transfer;
}

Status GpuExecutable::HostTransfer::Run() {
    begin_ns = NowNs();
    WEFT_TRY(by_peers ? groups.tensor->Barrier(tag) : RunTransfer(*op, in, out, groups, tag));
    end_ns = NowNs();
    return {};
}

Status GpuExecutable::Transfer(int32_t number, const OperandPlace& place) {
    HostTransfer transfer = TransferOf(number, place);
    WEFT_TRY(transfer.Run());
    if (trains()) transfers_.NoteIdle(transfer.end_ns - transfer.begin_ns);
    NoteTransfer(transfer);
    return {};
}

void GpuExecutable::NoteTransfer(const HostTransfer& transfer) {
    const program::Op& op = *transfer.op;
    const int64_t begin_ns = transfer.begin_ns, end_ns = transfer.end_ns;
    const bool timed = op.kind() != program::OpKind::kAllReduce;  // they time themselves
    const std::span<const std::byte> result = transfer.out.data == nullptr || transfer.by_peers
                                                  ? std::span<const std::byte>()
                                                  : transfer.out.bytes();
    transfers_.Note(op, result, groups_, timed ? end_ns - begin_ns : 0);
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (tracing_) {
        times_.Note({static_cast<int32_t>(transfer.tag.index), begin_ns, end_ns,
                     transfers_.last_arrival_ns()});
    }
}

// ---- Transfers beside submissions ---------------------------------------------------------------

// Starts the transfer of the earlier stage. The transfer's operands are ready once the stage's
// submissions have ended; by now the device has more work.
Status GpuExecutable::StartOverlapped(bool* too_long) {
    if (starting_ == nullptr) return {};
    WEFT_TRY(AwaitFirst(starts_behind_, too_long));
    const Stage& stage = *std::exchange(starting_, nullptr);
    WEFT_ASSIGN(const int64_t job,
                side_.Start([this, transfer = TransferOf(stage.transfer, stage.place)]() mutable {
                    if (overlap_status_.ok()) overlap_status_ = transfer.Run();
                    progress_.fetch_add(1, std::memory_order_relaxed);
                }));
    jobs_.emplace_back(stage.transfer, job);
    return {};
}

Status GpuExecutable::WaitForOverlapped(int32_t op) {
    const auto found = std::ranges::find(jobs_, op, &std::pair<int32_t, int64_t>::first);
    WEFT_CHECK(found != jobs_.end());
    const int64_t begin_ns = NowNs();
    side_.Wait(found->second, groups_.data != nullptr ? groups_.data : groups_.tensor);
    transfers_.NoteIdle(NowNs() - begin_ns);
    jobs_.erase(jobs_.begin(), found + 1);
    return overlap_status_;
}

// ---- Traces, probes -----------------------------------------------------------------------------

void GpuExecutable::NoteTimes(const Submission& submission, int64_t begin_ns, int64_t end_ns) {
    if (submission.timed.empty()) return;
    if (gpu_.description().timestamp_ns == 0) {  // one op
        times_.Note({submission.timed[0], begin_ns, end_ns, 0});
        return;
    }
    const auto count = static_cast<uint32_t>(submission.timed.size() + 1);
    times_.NoteSubmission(submission.timed, gpu_.Times(*submission.commands, count), end_ns);
}

Status GpuExecutable::ShowToProbe(int32_t number) {
    const program::Op& op = program_.ops[static_cast<size_t>(number)];
    if (op.outputs.empty() || !buffers_.Has(op.outputs[0])) return {};
    return probe_(number, shape_.RowsOf(program_.value(op.outputs[0]).shape[0]));
}

}  // namespace weft::backend::on_gpu
