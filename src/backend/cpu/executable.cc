#include "backend/executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <numeric>

#include "backend/cpu/compile.h"
#include "backend/cpu/expert_guess.h"
#include "backend/cpu/lower.h"
#include "backend/cpu/step_parts.h"
#include "backend/parts.h"
#include "backend/side_thread.h"
#include "backend/thread_team.h"
#include "backend/transfer.h"
#include "kernels/dense/lookup.h"

namespace weft::backend {
namespace {

using kernels::Sequence;

// A call that has run for this time no longer counts as progress.
constexpr int64_t kMostCallNs = 900'000'000'000;

// Marks the time in which the caller waits for other ranks.
class WaitsForRanks {
  public:
    explicit WaitsForRanks(std::atomic<bool>& waits)
        : waits_(waits), before_(waits.exchange(true, std::memory_order_relaxed)) {}
    ~WaitsForRanks() { waits_.store(before_, std::memory_order_relaxed); }
    WaitsForRanks(const WaitsForRanks&) = delete;
    WaitsForRanks& operator=(const WaitsForRanks&) = delete;

  private:
    std::atomic<bool>& waits_;
    const bool before_;
};

// Data that the last step of a slot has bound to calls.
struct SlotState {
    int64_t tokens = 0, outputs = 0;
    std::vector<Sequence> sequences;
    std::vector<kernels::StateSequence> states;
    std::vector<int32_t> token_order;  // kernels/dense/lookup.h
};

class CpuExecutable final : public Executable {
  public:
    CpuExecutable(program::ChunkedProgram chunked, const CompileOptions& options,
                  const CpuContext& context)
        : chunked_(std::move(chunked)),
          program_(chunked_.program),
          options_(options),
          kernels_(context.kernels),
          team_(context.team),
          buffers_(chunked_, options_, kernels_, context.cores),
          slots_(static_cast<size_t>(options.slots)),
          guess_(buffers_),
          side_(context.cores) {}

    Status Prepare() {
        WEFT_TRY(buffers_.Allocate());
        WEFT_ASSIGN(CallLists lists, LowerProgram(buffers_, team_.size()));
        WEFT_TRY(buffers_.PlanDrive(team_.size()));
        Prepare(plain_, std::move(lists.plain));
        Prepare(adapted_, std::move(lists.adapted));
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const auto id = static_cast<program::ValueId>(i);
            const program::Storage storage = program_.values[i].storage;
            if (storage == program::Storage::kInput) inputs_.push_back(id);
            if (storage == program::Storage::kState) caches_.push_back(buffers_.cache(id));
        }
        orders_tokens_ = std::ranges::any_of(
            plain_.calls, [](const Call& call) { return call.bound == Bound::kTokenOrder; });
        return {};
    }

    const program::Program& program() const override { return program_; }
    Status LoadWeight(program::ValueId id, const RowSource& source) override {
        return buffers_.Load(id, source);
    }
    bool CanReadRows(program::ValueId id) const override { return buffers_.CanReadRows(id); }
    Status ReadRows(program::ValueId id, int64_t row_begin, int64_t count,
                    std::span<std::byte> out) const override {
        buffers_.ReadRows(id, row_begin, count, out);
        return {};
    }
    Status Run(const program::OpRange& ops, const Step& step, const Communicators& groups) override;
    bool HasParts() const override { return !plain_.region.sums.empty(); }
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) override;
    Status Write(program::ValueId id, int64_t first_byte,
                 std::span<const std::byte> bytes) override;
    Status ZeroFill(program::Pool pool) override;
    std::span<const float> HostFloats(program::ValueId id, int64_t first,
                                      int64_t count) const override {
        const std::byte* data = buffers_.At(id, static_cast<int>(bindings_.slot));
        const auto size = static_cast<int64_t>(sizeof(float));
        WEFT_CHECK(data != nullptr && count >= 0);
        CheckBytes(program_.value(id), options_, first * size, static_cast<size_t>(count * size));
        return {reinterpret_cast<const float*>(data) + first, static_cast<size_t>(count)};
    }
    Status ReadTopK(program::ValueId id, int64_t row, int64_t columns,
                    std::span<Candidate> out) override {
        TopK(HostFloats(id, row * program_.value(id).shape[1], columns), out);
        return {};
    }
    Result<std::unique_ptr<HostSnapshot>> Snapshot(std::span<const program::ValueId> ids) override;

    DriveUse drive_use() const override { return buffers_.experts().use(); }
    std::vector<ExpertUse> expert_use() const override { return buffers_.experts().uses(); }
    void SetExpertUse(std::span<const ExpertUse> uses) override { buffers_.experts().Prime(uses); }
    MemoryUse memory() const override { return buffers_.Use(team_.size()); }
    void SetTracing(bool on) override {
        tracing_ = on;
        timings_.clear();
    }
    std::span<const OpTiming> timings() const override { return timings_; }
    TransferLog& transfers() override { return transfers_; }
    void SetProbe(Probe probe) override { probe_ = std::move(probe); }
    int64_t progress() const override;

  private:
    // The calls of a step, and data derived from them.
    struct List {
        std::vector<Call> calls;
        std::vector<bool> last_of_op;
        std::vector<size_t> first_of_op;  // by op: its first call; the last entry is the end
        OverlapRegion region;
    };
    // A part of a step: the region's calls, and its all-reduce in progress.
    struct Part {
        PartRows rows;
        std::vector<Call> calls;
        const Call* sum = nullptr;
        size_t index = 0;  // index of the sum in the list
        int64_t job = 0;   // 0: no sum in progress
        OpTiming timing;
        Status status;
    };
    void Prepare(List& list, std::vector<Call> calls) const;

    void BindInputs(const Step& step);
    void BindAdaptedOutputs(const Step& step);
    void BindInput(program::ValueId id, const Step& step);
    void BindCalls(const Step& step);
    size_t PartsOfStep() const;
    void BindParts();
    void RunPart(int part);
    // The following functions return false on all threads if the step has failed.
    void CopyPages(int part);
    bool RunCalls(size_t begin, size_t end, int part);
    bool RunParts(int part);
    bool MeetBetweenParts(size_t item, int part);
    void RunSegment(size_t item, int part);
    void StartSum(size_t item);
    void FinishSum(Part& part);
    size_t TailOf(const Call& call) const;
    // A rank that owns no rows still takes part in the transfers of rows.
    bool IsLeftOut(const Call& call) const {
        const int64_t dim = call.rows.dim;
        const bool by_rows = call.rows.at != OperandRef::kNowhere || call.per_output();
        const bool shared = call.communicates() && program::SharingRanks(dim) > 0;
        return by_rows && !shared && bindings_.RowsOf(dim) == 0;
    }
    void RunTimed(const Call& call, size_t index, int part, int parts);
    void Done(const Call& call, int64_t begin_ns);
    void Fail(size_t index, Status status);
    bool Failed(size_t below) const { return failed_call_.load(std::memory_order_relaxed) < below; }
    enum class Core { kOwn, kShared };  // kShared: kernels run on the same core meanwhile
    Status Transfer(const Call& call, std::span<const RowRange> prompt_rows, Core core);
    Status Communicate(const Call& call);
    Status Bring(const BringArgs& args);
    void NoteTransfer(const Call& call, int64_t took_ns) {
        transfers_.Note(program_.ops[static_cast<size_t>(call.op)],
                        call.As<TransferArgs>().out.bytes(), groups_, took_ns);
    }
    void StartOverlapped(size_t index);
    Status WaitForOverlapped(size_t index);
    void EndOverlapped();
    void ShowToProbe(size_t index);

    const program::ChunkedProgram chunked_;
    const program::Program& program_;
    const CompileOptions options_;
    const kernels::Kernels& kernels_;
    ThreadTeam& team_;
    Buffers buffers_;
    List plain_, adapted_;
    std::vector<program::ValueId> inputs_;
    std::vector<kernels::KvCache> caches_;
    bool orders_tokens_ = false;
    std::vector<SlotState> slots_;

    ExpertGuess guess_;

    // State of the running step.
    List* list_ = &plain_;
    size_t begin_ = 0, end_ = 0;  // calls
    Bindings bindings_;
    std::vector<kernels::AdaptedRow> adapted_rows_, adapted_outputs_;  // by adapter
    std::vector<int32_t> adapter_of_row_;                              // 0: none
    const Step* step_ = nullptr;
    Communicators groups_;
    Status status_;
    // The call that failed. Threads leave at the first barrier after this call, so all leave at the
    // same barrier. With a plain flag, a slow thread could see it one barrier earlier.
    std::atomic<size_t> failed_call_{SIZE_MAX};
    std::atomic<int64_t> progress_{0};       // number of calls that have ended
    std::atomic<bool> waits_{true};          // no step runs, or it waits for other ranks
    mutable std::atomic<int64_t> ticks_{0};  // progress() while a call runs
    mutable std::atomic<int64_t> seen_{-1}, seen_ns_{0};  // the last progress_, and since when
    bool tracing_ = false;
    std::vector<OpTiming> timings_;
    TransferLog transfers_;
    Probe probe_;

    size_t count_ = 0;  // number of parts; 0: the step runs as a whole
    std::array<Part, static_cast<size_t>(kMostParts)> parts_;
    std::vector<RowRange> prompt_rows_;  // of the step
    // Transfers beside calls: the job and the result of each, by call. The side thread writes a
    // result, and thread 0 reads it after waiting. The first error is also the result of all later
    // jobs.
    std::vector<int64_t> jobs_;
    std::vector<Status> side_statuses_;
    Status side_failed_;  // only the side thread uses it
    Status ended_;        // result of a step with unfinished jobs; no step runs after an error
    SideThread side_;
};

void CpuExecutable::Prepare(List& list, std::vector<Call> calls) const {
    list.calls = std::move(calls);
    // An op may consist of several calls.
    list.last_of_op.assign(list.calls.size(), true);
    for (size_t i = 0; i + 1 < list.calls.size(); ++i) {
        list.last_of_op[i] = list.calls[i].op != list.calls[i + 1].op;
    }
    list.first_of_op.assign(program_.ops.size() + 1, list.calls.size());
    size_t call = 0;
    for (size_t op = 0; op < program_.ops.size(); ++op) {
        while (call < list.calls.size() && static_cast<size_t>(list.calls[call].op) < op) ++call;
        list.first_of_op[op] = call;
    }
    if (options_.overlap != Overlap::kNever) list.region = FindOverlapRegion(list.calls);
}

// ---- Running ------------------------------------------------------------------------------------

Status CpuExecutable::Run(const program::OpRange& ops, const Step& step,
                          const Communicators& groups) {
    WEFT_TRY(CheckStep(step, options_));
    if (!ended_.ok()) return ended_;
    step_ = &step;
    groups_ = groups;
    status_ = {};
    failed_call_ = SIZE_MAX;
    timings_.clear();
    transfers_.Begin();
    if (!step.again) BindInputs(step);
    begin_ = list_->first_of_op[ops.begin];
    end_ = list_->first_of_op[ops.end];
    buffers_.numbers() = {step.number, step.rate, step.gradient_scale, step.average_share};
    BindCalls(step);
    if (options_.beside) {
        jobs_.assign(list_->calls.size(), 0);
        side_statuses_.assign(jobs_.size(), Status());
    }
    waits_.store(false, std::memory_order_relaxed);
    team_.Run([this](int part) { RunPart(part); });
    waits_.store(true, std::memory_order_relaxed);
    if (options_.beside) EndOverlapped();
    // After an error, sums of other parts may still run; they fail soon.
    for (size_t i = 0; i < count_; ++i) FinishSum(parts_[i]);
    return std::move(status_);
}

// Binds the data that the slot keeps until its next step.
void CpuExecutable::BindInputs(const Step& step) {
    SlotState& slot = slots_[static_cast<size_t>(step.slot)];
    slot.tokens = static_cast<int64_t>(step.tokens.size());
    slot.outputs = static_cast<int64_t>(step.output_rows.size());
    slot.sequences.clear();
    slot.states.clear();
    adapted_rows_.clear();
    adapter_of_row_.assign(step.tokens.size(), 0);
    for (const StepSequence& s : step.sequences) {
        slot.sequences.push_back({s.row_begin, s.row_count, s.position, s.pages});
        slot.states.push_back({s.row_begin, s.row_count, s.state_from, s.state_to, s.state_writes});
        for (int32_t i = 0; s.adapter != 0 && i < s.row_count; ++i) {
            adapted_rows_.push_back({s.row_begin + i, s.adapter});
            adapter_of_row_[static_cast<size_t>(s.row_begin + i)] = s.adapter;
        }
    }
    std::ranges::stable_sort(adapted_rows_, {}, &kernels::AdaptedRow::adapter);
    BindAdaptedOutputs(step);
    list_ = adapted_rows_.empty() || adapted_.calls.empty() ? &plain_ : &adapted_;
    const Step own = WithOwnTokens(step, groups_);
    for (const program::ValueId id : inputs_) BindInput(id, own);
    if (!orders_tokens_) return;
    slot.token_order.resize(own.tokens.size());
    std::iota(slot.token_order.begin(), slot.token_order.end(), 0);
    std::ranges::stable_sort(slot.token_order, {},
                             [&](int32_t row) { return own.tokens[static_cast<size_t>(row)]; });
}

void CpuExecutable::BindAdaptedOutputs(const Step& step) {
    adapted_outputs_.clear();
    if (adapted_rows_.empty() || adapted_.calls.empty()) return;
    for (size_t i = 0; i < step.output_rows.size(); ++i) {
        const int32_t adapter = adapter_of_row_[static_cast<size_t>(step.output_rows[i])];
        if (adapter != 0) adapted_outputs_.push_back({static_cast<int32_t>(i), adapter});
    }
    std::ranges::stable_sort(adapted_outputs_, {}, &kernels::AdaptedRow::adapter);
}

void CpuExecutable::BindInput(program::ValueId id, const Step& step) {
    std::byte* const at = buffers_.At(id, step.slot);
    const std::string& name = program_.value(id).name;
    const auto put = [&](const auto& bytes) {
        if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size_bytes());
    };
    if (name == "tokens") return put(step.tokens);
    if (name == "positions") return put(step.positions);
    if (name == "output_rows") return put(step.output_rows);
    if (name == "token_types") {
        auto* const types = reinterpret_cast<int32_t*>(at);
        for (const StepSequence& s : step.sequences) {
            for (int32_t i = 0; i < s.row_count; ++i) {
                types[s.row_begin + i] = s.second >= 0 && s.position + i >= s.second ? 1 : 0;
            }
        }
    }
    if (name == "targets") return put(step.targets);
    if (name == "noise_keys") return put(step.noise_keys);
    if (name == "noise_amplitudes") return WriteNoise(step, at);
    for (const program::ModelChunk& chunk : chunked_.chunks) {
        if (id == chunk.output_gradient) WriteLossGradients(step, at);
        if (id == chunk.side_gradient) put(std::span(&step.side_gradient, 1));
    }
}

void CpuExecutable::BindCalls(const Step& step) {
    const SlotState& slot = slots_[static_cast<size_t>(step.slot)];
    bindings_ = {slot.tokens, slot.outputs,  step.slot,        slot.sequences,
                 slot.states, adapted_rows_, adapted_outputs_, slot.token_order.data()};
    const RowRange own = OwnRows(slot.tokens, groups_);
    bindings_.own_begin = own.begin;
    bindings_.own_rows = own.count;
    for (size_t i = begin_; i < end_; ++i) BindCall(list_->calls[i], bindings_);
    FindPromptRows(step.sequences, 0, slot.tokens, prompt_rows_);
    groups_.prompt_rows = prompt_rows_;
    count_ = PartsOfStep();
    if (count_ > 0) BindParts();
}

size_t CpuExecutable::PartsOfStep() const {
    const OverlapRegion& region = list_->region;
    const int64_t rows = bindings_.tokens;
    if (region.sums.empty() || region.begin < begin_ || region.end > end_) return 0;
    if (groups_.tensor == nullptr || probe_ || rows < 2) return 0;
    if (groups_.tensor->size() == 1 || !groups_.parts) return 0;
    if (options_.overlap == Overlap::kAlways) {
        return static_cast<size_t>(std::min(rows, kMostParts));
    }
    const auto& sum = list_->calls[region.sums[0]].As<TransferArgs>();
    const int64_t bytes = SumBytes(groups_, sum.in.dtype, rows, sum.in.cols);
    const bool pays =
        bytes >= kLeastSumInParts && groups_.tensor->LeavesCpuIdle(static_cast<size_t>(bytes / 2));
    return pays ? static_cast<size_t>(PartsOfRows(rows)) : 0;
}

void CpuExecutable::BindParts() {
    const std::vector<int64_t> counts = RowParts(bindings_.tokens, static_cast<int64_t>(count_));
    int64_t begin = 0;
    for (size_t i = 0; i < count_; ++i) {
        PartRows& own = parts_[i].rows;
        const int64_t count = own.count = counts[i];
        own.begin = begin;
        FindPromptRows(step_->sequences, begin, count, own.prompt_rows);
        CutSequences(bindings_.sequences, begin, count, own.sequences);
        CutStates(bindings_.states, begin, count, own.states);
        own.adapted = adapted_rows_;
        std::erase_if(own.adapted, [&](const kernels::AdaptedRow& row) {
            return row.row < begin || row.row >= begin + count;
        });
        std::vector<Call>& calls = parts_[i].calls;
        calls.assign(list_->calls.begin() + static_cast<ptrdiff_t>(list_->region.begin),
                     list_->calls.begin() + static_cast<ptrdiff_t>(list_->region.end));
        for (Call& call : calls) {
            ShiftRows(call, own);
        }
        begin += count;
    }
}

void CpuExecutable::RunPart(int part) {
    CopyPages(part);
    if (count_ == 0) {
        RunCalls(begin_, end_, part);
    } else if (RunCalls(begin_, list_->region.begin, part) && RunParts(part)) {
        RunCalls(list_->region.end, end_, part);
    }
}

// Parts divide the caches, so that copies that build on each other stay in order.
void CpuExecutable::CopyPages(int part) {
    if (step_->copies.empty()) return;
    int turn = 0;
    for (const kernels::KvCache& cache : caches_) {
        if (cache.data == nullptr || turn++ % team_.size() != part) continue;
        for (const auto& [from, to] : step_->copies) {
            if (from == to) continue;
            std::memcpy(cache.Row(to, 0, 0), cache.Row(from, 0, 0),
                        static_cast<size_t>(cache.PageStride()));
        }
    }
    team_.Barrier();
}

bool CpuExecutable::RunCalls(size_t begin, size_t end, int part) {
    for (size_t i = begin; i < end; ++i) {
        Call& call = list_->calls[i];
        if (call.waits_for != 0 && options_.beside) {
            const auto awaited = static_cast<size_t>(call.waits_for) - 1;
            // (After an error the job may wait for ranks that receive the error only from this
            // rank.)
            const bool waits = part == 0 && status_.ok() && jobs_[awaited] != 0;
            if (waits) Fail(i - 1, WaitForOverlapped(awaited));
        }
        if (call.barrier || call.waits_for != 0) {
            const bool reads = i > begin && list_->calls[i - 1].kind == CallKind::kBring;
            team_.Barrier(reads ? ThreadTeam::Wait::kSleep : ThreadTeam::Wait::kPoll);
            if (Failed(i)) return false;
        }
        if (IsLeftOut(call)) continue;
        const size_t tail = TailOf(call);
        if (part == 0 || tail == 0) RunTimed(call, i, part, team_.size());
        if (probe_ && list_->last_of_op[i]) {
            team_.Barrier();
            // (Other threads may be late: they check for a failure only after the next barrier.)
            if (part == 0 && status_.ok()) ShowToProbe(i);
            team_.Barrier();
            if (Failed(i + 1)) return false;
        }
        const bool failed = part == 0 && failed_call_.load(std::memory_order_relaxed) == i;
        // With one thread there may be no later barrier to stop at.
        if (team_.size() == 1 && failed) return false;
        for (size_t k = i + 1; part == 0 && !failed && k <= i + tail; ++k)
            RunTimed(list_->calls[k], k, 0, 1);
        i += tail;
    }
    return true;
}

void CpuExecutable::Fail(size_t index, Status status) {
    if (status.ok() || !status_.ok()) return;
    status_ = std::move(status);
    failed_call_.store(index, std::memory_order_relaxed);
}

// Number of calls after this one that thread 0 makes alone.
size_t CpuExecutable::TailOf(const Call& call) const {
    if (call.tail == 0 || probe_ || team_.size() == 1) return 0;
    return call.As<TransferArgs>().in.rows == 1 ? static_cast<size_t>(call.tail) : 0;
}

// index: the call's index in the list.
void CpuExecutable::RunTimed(const Call& call, size_t index, int part, int parts) {
    const int64_t begin_ns = tracing_ && part == 0 ? NowNs() : 0;
    call.Run(kernels_, part, parts);
    if (part != 0) return;
    if (call.communicates())
        call.beside && !probe_ ? StartOverlapped(index) : Fail(index, Communicate(call));
    Done(call, begin_ns);
}

// A call may take longer than other ranks wait for progress: attention over a long context, a
// drive that was asleep. So the number also grows at each call of this function while a call of the
// step runs that waits for no rank.
int64_t CpuExecutable::progress() const {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const int64_t done = progress_.load(kRelaxed), now_ns = NowNs();
    const bool waits = waits_.load(kRelaxed);
    if (seen_.exchange(done, kRelaxed) != done || waits) seen_ns_.store(now_ns, kRelaxed);
    const bool runs = !waits && now_ns - seen_ns_.load(kRelaxed) < kMostCallNs;
    if (runs) ticks_.fetch_add(1, kRelaxed);
    return done + ticks_.load(kRelaxed);
}

void CpuExecutable::Done(const Call& call, int64_t begin_ns) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    const int64_t last_arrival_ns = call.communicates() ? transfers_.last_arrival_ns() : 0;
    if (tracing_) timings_.push_back({call.op, begin_ns, NowNs(), last_arrival_ns});
}

// ---- In parts (step_parts.h) --------------------------------------------------------------------

// Items are segments of parts, in the order 0a 0b 1a 1b ...
bool CpuExecutable::RunParts(int part) {
    const size_t items = count_ * (list_->region.sums.size() + 1);
    for (size_t item = 0; item < items; ++item) {
        if (!MeetBetweenParts(item, part)) return false;
        RunSegment(item, part);
    }
    return MeetBetweenParts(items, part);
}

// Call before each item and at the end. Starts the sum of the previous item, and finishes the sum
// that the item needs (at the end: all sums).
bool CpuExecutable::MeetBetweenParts(size_t item, int part) {
    team_.Barrier();
    if (part == 0) {
        const size_t items = count_ * (list_->region.sums.size() + 1);
        if (item > 0) StartSum(item - 1);
        if (item < items) FinishSum(parts_[item % count_]);
        for (size_t i = 0; item == items && i < count_; ++i) FinishSum(parts_[i]);
    }
    team_.Barrier();
    // Thread 0 writes failed_call_ only between these two barriers.
    return failed_call_.load(std::memory_order_relaxed) == SIZE_MAX;
}

void CpuExecutable::RunSegment(size_t item, int part) {
    const size_t segment = item / count_;
    const std::vector<size_t>& sums = list_->region.sums;
    const size_t begin = segment == 0 ? list_->region.begin : sums[segment - 1] + 1;
    const size_t end = segment == sums.size() ? list_->region.end : sums[segment];
    for (size_t i = begin; i < end; ++i) {
        const Call& call = parts_[item % count_].calls[i - list_->region.begin];
        if (call.barrier && i > begin) team_.Barrier();
        RunTimed(call, i, part, team_.size());
    }
}

void CpuExecutable::StartSum(size_t item) {
    const size_t segment = item / count_;
    if (segment == list_->region.sums.size()) return;  // a part's last segment has no sum
    Part& part = parts_[item % count_];
    part.index = list_->region.sums[segment];
    part.sum = &part.calls[part.index - list_->region.begin];
    const Result<int64_t> job = side_.Start([this, &part] {
        part.timing = {part.sum->op, NowNs(), 0, 0};
        part.status = Transfer(*part.sum, part.rows.prompt_rows, Core::kShared);
        if (!part.status.ok()) return;
        // Noted before the next sum, which the same thread runs.
        NoteTransfer(*part.sum, 0);
        part.timing.end_ns = NowNs();
        part.timing.last_arrival_ns = transfers_.last_arrival_ns();
        progress_.fetch_add(1, std::memory_order_relaxed);
    });
    if (!job.ok()) return Fail(part.index, job.error());
    part.job = *job;
}

// The deadlines of the sum bound the wait for it.
void CpuExecutable::FinishSum(Part& part) {
    if (part.job == 0) return;
    const WaitsForRanks waits(waits_);
    side_.Wait(std::exchange(part.job, 0));
    Fail(part.index, std::move(part.status));
    if (status_.ok() && tracing_) timings_.push_back(part.timing);
}

// ---- Communication ------------------------------------------------------------------------------

// prompt_rows: the prompt rows among the call's rows, if these are rows of the step.
Status CpuExecutable::Transfer(const Call& call, std::span<const RowRange> prompt_rows, Core core) {
    const program::Op& op = program_.ops[static_cast<size_t>(call.op)];
    net::OpTag tag{program::OpName(op.kind()), call.op, step_->number};
    tag.aside = core == Core::kShared;
    const auto& args = call.As<TransferArgs>();
    Communicators groups = groups_;
    groups.prompt_rows = {};
    const bool of_step = call.rows.at != OperandRef::kNowhere && call.rows.dim == program::kTokens;
    if (of_step) groups.prompt_rows = prompt_rows;
    return RunTransfer(op, args.in, args.out, groups, tag);
}

Status CpuExecutable::Communicate(const Call& call) {
    if (call.kind == CallKind::kBring) return Bring(call.As<BringArgs>());
    // In inference an all-reduce measures its own time.
    const bool timed = call.kind == CallKind::kTransfer || !buffers_.packs();
    const int64_t begin_ns = timed ? NowNs() : 0;
    Status status = [&] {
        const WaitsForRanks waits(waits_);
        return Transfer(call, prompt_rows_, Core::kOwn);
    }();
    const int64_t took_ns = timed ? NowNs() - begin_ns : 0;
    transfers_.NoteIdle(took_ns);
    if (status.ok() && buffers_.packs()) NoteTransfer(call, took_ns);
    return status;
}

Status CpuExecutable::Bring(const BringArgs& args) {
    ExpertStore& experts = buffers_.experts();
    const auto ids = static_cast<program::ValueId>(args.ids);
    if (ids != program::kNoValue) {
        WEFT_TRY(experts.Need(ids, args.begin));
        if (experts.WantsGuess(guess_.NextOf(ids))) {
            const auto guess = guess_.Next(ids, args.rows, static_cast<int>(bindings_.slot));
            if (!guess.experts.empty()) experts.ReadAhead(guess.ids, guess.experts);
        }
    }
    return experts.Await(static_cast<program::ValueId>(args.weight));
}

// ---- Transfers beside ---------------------------------------------------------------------------

void CpuExecutable::StartOverlapped(size_t index) {
    const Result<int64_t> job = side_.Start([this, index] {
        if (side_failed_.ok()) side_failed_ = Transfer(list_->calls[index], {}, Core::kOwn);
        side_statuses_[index] = side_failed_;
    });
    if (!job.ok()) return Fail(index, job.error());
    jobs_[index] = *job;
}

Status CpuExecutable::WaitForOverlapped(size_t index) {
    const int64_t begin_ns = NowNs();
    const WaitsForRanks waits(waits_);
    side_.Wait(jobs_[index], groups_.data != nullptr ? groups_.data : groups_.tensor);
    transfers_.NoteIdle(NowNs() - begin_ns);
    return side_statuses_[index];
}

// (After an error jobs may still wait for ranks that receive the error only from this rank.)
void CpuExecutable::EndOverlapped() {
    const auto last = static_cast<size_t>(std::ranges::max_element(jobs_) - jobs_.begin());
    if (status_.ok() && jobs_[last] != 0) status_ = WaitForOverlapped(last);
    if (!probe_) ended_ = status_;  // with a probe, no transfer runs beside calls
}

// ---- Reading ------------------------------------------------------------------------------------

// Runs on thread 0, after the call with this index.
void CpuExecutable::ShowToProbe(size_t index) {
    const Call& call = list_->calls[index];
    const program::Op& op = program_.ops[static_cast<size_t>(call.op)];
    if (op.outputs.empty() || buffers_.At(op.outputs[0]) == nullptr) return;
    const int64_t dim = program_.value(op.outputs[0]).shape[0];
    Fail(index, probe_(call.op, bindings_.RowsOf(dim)));
}

Status CpuExecutable::Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) {
    const std::byte* data = buffers_.At(id, static_cast<int>(bindings_.slot));
    WEFT_CHECK(data != nullptr);
    CheckBytes(program_.value(id), options_, first_byte, out.size());
    if (!out.empty()) std::memcpy(out.data(), data + first_byte, out.size());
    return {};
}

Status CpuExecutable::Write(program::ValueId id, int64_t first_byte,
                            std::span<const std::byte> bytes) {
    CheckBytes(program_.value(id), options_, first_byte, bytes.size());
    if (!bytes.empty()) std::memcpy(buffers_.At(id) + first_byte, bytes.data(), bytes.size());
    return {};
}

Status CpuExecutable::ZeroFill(program::Pool pool) {
    const std::span<std::byte> bytes = buffers_.PoolBytes(pool);
    const dense::FillArgs fill{bytes.data(), static_cast<int64_t>(bytes.size())};
    team_.Run([&](int part) { dense::Fill(fill, part, team_.size()); });
    return {};
}

// Reads the values in place.
class MemorySnapshot final : public HostSnapshot {
  public:
    explicit MemorySnapshot(const Buffers& buffers) : buffers_(buffers) {}
    Status Read(program::ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        if (!out.empty()) std::memcpy(out.data(), buffers_.At(id) + first_byte, out.size());
        return {};
    }

  private:
    const Buffers& buffers_;
};

Result<std::unique_ptr<HostSnapshot>> CpuExecutable::Snapshot(std::span<const program::ValueId>) {
    return std::unique_ptr<HostSnapshot>(std::make_unique<MemorySnapshot>(buffers_));
}

}  // namespace

Result<MemoryUse> PlanCpuMemory(const program::ChunkedProgram& chunked,
                                const CompileOptions& options, CpuLevel level, int threads) {
    Buffers buffers(chunked, options, kernels::KernelsFor(level));
    WEFT_TRY(CountScratch(buffers));
    return buffers.Use(threads);
}

Result<std::unique_ptr<Executable>> CompileForCpu(program::ChunkedProgram chunked,
                                                  const CompileOptions& options,
                                                  const CpuContext& context) {
    auto executable = std::make_unique<CpuExecutable>(std::move(chunked), options, context);
    WEFT_TRY(executable->Prepare());
    return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace weft::backend
