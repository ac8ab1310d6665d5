#include "backend/executable.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/compile.h"
#include "backend/cpu/cpu_device.h"
#include "backend/cpu/halves.h"
#include "backend/cpu/lower.h"
#include "backend/cpu/side_thread.h"
#include "backend/cpu/thread_team.h"
#include "backend/transfer.h"
#include "tensor/quant.h"

namespace weft::backend {
namespace {

using kernels::Sequence;
using program::OpKind;

// Rows of a weight are read and packed in pieces of about this size, so that loading needs little
// memory beside the weights themselves.
constexpr int64_t kLoadPieceBytes = 1 << 20;
// Steps that run in halves: a half is still bound by arithmetic and not by reading weights, and its
// sums take longer than handing them over (two wake-ups, some 0.1 ms).
constexpr int64_t kLeastRowsInHalves = 128;
constexpr int64_t kLeastSumInHalves = 512 << 10;

class CpuExecutable final : public Executable {
  public:
    CpuExecutable(const program::Program& program, const CompileOptions& options,
                  const kernels::Kernels& kernels, ThreadTeam& team, const std::vector<int>& cores)
        : program_(program), options_(options), kernels_(kernels), team_(team), side_(cores) {}

    Status Prepare() {
        WEFT_ASSIGN(buffers_, AllocateBuffers(program_, options_, kernels_));
        WEFT_ASSIGN(CallLists lists, Lower(program_, options_, kernels_, team_.size(), buffers_));
        Prepare(plain_, std::move(lists.plain));
        Prepare(adapted_, std::move(lists.adapted));
        return {};
    }

    Status LoadWeight(program::ValueId id, const RowSource& source) override;
    Status Run(const Step& step, const Groups& groups) override;
    Status Read(program::ValueId id, int64_t first, std::span<float> out) override;
    Status ReadTop(program::ValueId id, int64_t row, int64_t columns,
                   std::span<Candidate> out) override;

    MemoryUse memory() const override {
        return {static_cast<uint64_t>(buffers_.weights.size_bytes()),
                static_cast<uint64_t>(buffers_.kv.size_bytes()),
                static_cast<uint64_t>(buffers_.arena.size_bytes() + buffers_.scratch.size_bytes())};
    }
    void SetTracing(bool on) override {
        tracing_ = on;
        timings_.clear();
    }
    std::span<const OpTiming> timings() const override { return timings_; }
    bool ends_with_exchange() const override { return EndsWithExchange(program_); }
    TransferLog& transfers() override { return transfers_; }
    void SetProbe(Probe probe) override { probe_ = std::move(probe); }
    int64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

  private:
    // The calls of a step, and what follows from them.
    struct List {
        std::vector<Call> calls;
        std::vector<bool> last_of_op;
        HalvesRegion region;
    };
    void Prepare(List& list, std::vector<Call> calls) const {
        list.calls = std::move(calls);
        // An op may take several calls.
        list.last_of_op.assign(list.calls.size(), true);
        for (size_t i = 0; i + 1 < list.calls.size(); ++i) {
            list.last_of_op[i] = list.calls[i].op != list.calls[i + 1].op;
        }
        if (options_.overlap != Overlap::kNever) list.region = FindHalves(list.calls);
    }

    Status LoadVector(const program::Value& value, std::byte* out, const RowSource& source) const;
    Status LoadVectors(const program::Value& value, std::byte* out, const RowSource& source) const;
    using Pack = decltype(kernels::Kernels::pack);
    Status LoadMatrix(const kernels::PackedMatrix& matrix, int64_t first_row,
                      const RowSource& source, Pack pack) const;
    void Bind(const Step& step);
    bool UsesHalves() const;
    void BindHalves();
    void RunPart(int part);
    // These are false where the step has failed, on all threads alike.
    void CopyPages(int part);
    void RunComputing(size_t end, int part);
    bool RunCalls(size_t begin, size_t end, int part);
    bool RunHalves(int part);
    bool MeetBetweenHalves(size_t item, int part);
    void RunSegment(size_t item, int part);
    void StartSum(size_t item);
    void FinishSum();
    size_t TailOf(const Call& call) const;
    void RunTimed(size_t index, int part, int parts);
    void RunCall(size_t index, int part, int parts);
    void Done(const Call& call, int64_t begin_ns);
    Status Transfer(const Call& call, bool aside);
    Status Communicate(const Call& call);
    void NoteTransfer(const Call& call, int64_t took_ns);
    void ShowToProbe(size_t index);
    int64_t LastArrival(const Call& call) const {
        return call.communicates() ? transfers_.last_arrival_ns() : 0;
    }

    program::Program program_;
    CompileOptions options_;
    const kernels::Kernels& kernels_;
    ThreadTeam& team_;
    Buffers buffers_;
    List plain_, adapted_;

    // Of the step that runs.
    List* list_ = &plain_;
    std::vector<Sequence> sequences_;
    std::vector<kernels::AdaptedRow> adapted_rows_;  // by adapter
    const Step* step_ = nullptr;
    Groups groups_;
    Status status_;
    // The call that failed. A thread leaves at the first barrier after it, so that all leave at the
    // same one: a plain flag could be seen by a slow thread at the barrier before.
    std::atomic<size_t> failed_call_{SIZE_MAX};
    std::atomic<int64_t> progress_{0};
    bool tracing_ = false;
    std::vector<OpTiming> timings_;
    TransferLog transfers_;
    Probe probe_;

    // Of a step that runs in halves: the region's calls for each, and the sum that is under way.
    bool in_halves_ = false;
    std::vector<Call> half_calls_[2];
    std::vector<Sequence> half_sequences_[2];
    std::vector<kernels::AdaptedRow> half_adapted_[2];
    struct {
        const Call* call = nullptr;  // null: none
        size_t index = 0;            // in the list
        int64_t begin_ns = 0, end_ns = 0;
        Status status;
    } sum_;
    SideThread side_;
};

// ---- Loading ------------------------------------------------------------------------------------

Status CpuExecutable::LoadWeight(program::ValueId id, const RowSource& source) {
    const program::Value& value = program_.value(id);
    const size_t index = static_cast<size_t>(id);
    const program::Shape& shape = value.shape;
    if (shape.rank == 1) return LoadVector(value, buffers_.values[index], source);
    if (shape.rank == 2) {
        const auto pack = buffers_.is_adapter[index] ? kernels::PackAdapter : kernels_.pack;
        return LoadMatrix(buffers_.matrices[index], 0, source, pack);
    }
    if (shape[1] == 1) return LoadVectors(value, buffers_.values[index], source);
    const kernels::PackedStack& stack = buffers_.stacks[index];
    for (int64_t i = 0; i < stack.count; ++i) {
        WEFT_TRY(LoadMatrix(stack.Matrix(i), i * stack.rows, source, kernels_.pack));
    }
    return {};
}

Status CpuExecutable::LoadVector(const program::Value& value, std::byte* out,
                                 const RowSource& source) const {
    const int64_t count = value.shape[0];
    std::vector<std::byte> raw(static_cast<size_t>(RowBytes(value.dtype, count)));
    WEFT_TRY(source(0, count, raw));
    DequantizeRow(value.dtype, raw, {reinterpret_cast<float*>(out), static_cast<size_t>(count)});
    return {};
}

// Each row of a stack [m, 1, n] is a vector.
Status CpuExecutable::LoadVectors(const program::Value& value, std::byte* out,
                                  const RowSource& source) const {
    const int64_t count = value.shape[2];
    std::vector<std::byte> raw(static_cast<size_t>(RowBytes(value.dtype, count)));
    for (int64_t i = 0; i < value.shape[0]; ++i) {
        WEFT_TRY(source(i, 1, raw));
        DequantizeRow(value.dtype, raw,
                      {reinterpret_cast<float*>(out) + i * count, static_cast<size_t>(count)});
    }
    return {};
}

// first_row: of the weight, for the matrix's own first.
Status CpuExecutable::LoadMatrix(const kernels::PackedMatrix& matrix, int64_t first_row,
                                 const RowSource& source, Pack pack) const {
    const int64_t row_bytes = RowBytes(matrix.dtype, matrix.cols);
    const int64_t strips =
        std::max<int64_t>(1, kLoadPieceBytes / (row_bytes * kernels::kStripRows));
    const int64_t piece = std::min(strips * kernels::kStripRows, matrix.rows);
    std::vector<std::byte> raw(static_cast<size_t>(piece * row_bytes));
    for (int64_t row = 0; row < matrix.rows; row += piece) {
        const int64_t count = std::min(piece, matrix.rows - row);
        const std::span<std::byte> rows(raw.data(), static_cast<size_t>(count * row_bytes));
        WEFT_TRY(source(first_row + row, count, rows));
        pack(matrix, row, count, rows.data(), row_bytes);
    }
    return {};
}

// ---- Running ------------------------------------------------------------------------------------

Status CpuExecutable::Run(const Step& step, const Groups& groups) {
    CheckStep(step, options_, ends_with_exchange());
    step_ = &step;
    groups_ = groups;
    status_ = {};
    failed_call_ = SIZE_MAX;
    timings_.clear();
    transfers_.Begin();
    Bind(step);
    team_.Run([](void* self, int part) { static_cast<CpuExecutable*>(self)->RunPart(part); }, this);
    return std::move(status_);
}

void CpuExecutable::Bind(const Step& step) {
    sequences_.clear();
    adapted_rows_.clear();
    for (const StepSequence& s : step.sequences) {
        sequences_.push_back({s.row_begin, s.row_count, s.position, s.pages});
        for (int32_t i = 0; s.adapter != 0 && i < s.row_count; ++i) {
            adapted_rows_.push_back({s.row_begin + i, s.adapter});
        }
    }
    std::ranges::stable_sort(adapted_rows_, {}, &kernels::AdaptedRow::adapter);
    list_ = adapted_rows_.empty() || adapted_.calls.empty() ? &plain_ : &adapted_;
    for (Call& call : list_->calls) {
        const size_t rows = call.per_output ? step.output_rows.size() : step.tokens.size();
        BindCall(call, step, sequences_, adapted_rows_, static_cast<int64_t>(rows));
    }
    in_halves_ = UsesHalves();
    if (in_halves_) BindHalves();
}

bool CpuExecutable::UsesHalves() const {
    const auto rows = static_cast<int64_t>(step_->tokens.size());
    if (list_->region.sums.empty() || groups_.tensor == nullptr || probe_ || rows < 2) return false;
    if (groups_.tensor->size() == 1) return false;
    if (options_.overlap == Overlap::kAlways) return true;
    const auto& sum = list_->calls[list_->region.sums[0]].As<TransferArgs>();
    const int64_t bytes = SumBytes(groups_.wire, sum.in_dtype, rows * sum.in_cols);
    return rows >= kLeastRowsInHalves && bytes >= kLeastSumInHalves &&
           groups_.tensor->LeavesCpuIdle(static_cast<size_t>(bytes / 2));
}

void CpuExecutable::BindHalves() {
    const auto rows = static_cast<int64_t>(step_->tokens.size());
    const int64_t middle = rows / 2;
    for (int half : {0, 1}) {
        const int64_t begin = half == 0 ? 0 : middle;
        const int64_t count = half == 0 ? middle : rows - middle;
        CutSequences(sequences_, begin, count, half_sequences_[half]);
        half_adapted_[half] = adapted_rows_;
        std::erase_if(half_adapted_[half], [&](const kernels::AdaptedRow& row) {
            return row.row < begin || row.row >= begin + count;
        });
        std::vector<Call>& calls = half_calls_[half];
        calls.assign(list_->calls.begin() + static_cast<ptrdiff_t>(list_->region.begin),
                     list_->calls.begin() + static_cast<ptrdiff_t>(list_->region.end));
        for (Call& call : calls) {
            ShiftRows(call, begin, count, half_sequences_[half], half_adapted_[half]);
        }
    }
}

void CpuExecutable::RunPart(int part) {
    const size_t all = list_->calls.size();
    switch (step_->part) {
        case StepPart::kWhole: RunComputing(all, part); break;
        case StepPart::kCompute: RunComputing(all - 2, part); break;
        case StepPart::kSend: RunCalls(all - 2, all - 1, part); break;
        case StepPart::kReceive: RunCalls(all - 1, all, part); break;
    }
}

// Shared out by caches, so that copies that build on each other stay in order.
void CpuExecutable::CopyPages(int part) {
    if (step_->copies.empty()) return;
    int turn = 0;
    for (const kernels::KvCache& cache : buffers_.caches) {
        if (cache.data == nullptr || turn++ % team_.size() != part) continue;
        for (const auto& [from, to] : step_->copies) {
            if (from == to) continue;
            std::memcpy(cache.Row(to, 0, 0), cache.Row(from, 0, 0),
                        static_cast<size_t>(cache.PageStride()));
        }
    }
    team_.Barrier();
}

void CpuExecutable::RunComputing(size_t end, int part) {
    CopyPages(part);
    if (!in_halves_) {
        RunCalls(0, end, part);
    } else if (RunCalls(0, list_->region.begin, part) && RunHalves(part)) {
        RunCalls(list_->region.end, end, part);
    }
}

bool CpuExecutable::RunCalls(size_t begin, size_t end, int part) {
    const bool no_outputs = step_->output_rows.empty();
    for (size_t i = begin; i < end; ++i) {
        Call& call = list_->calls[i];
        if (call.barrier) {
            team_.Barrier();
            if (failed_call_.load(std::memory_order_relaxed) < i) return false;
        }
        if (call.per_output && no_outputs) continue;
        const size_t tail = TailOf(call);
        if (part == 0 || tail == 0) RunTimed(i, part, team_.size());
        if (probe_ && list_->last_of_op[i]) {
            team_.Barrier();
            if (failed_call_.load(std::memory_order_relaxed) <= i) return false;
            if (part == 0) ShowToProbe(i);
            team_.Barrier();
            if (failed_call_.load(std::memory_order_relaxed) <= i) return false;
        }
        const bool failed = part == 0 && failed_call_.load(std::memory_order_relaxed) == i;
        // With one thread there may be no barrier to meet the failure at.
        if (team_.size() == 1 && failed) return false;
        for (size_t k = i + 1; part == 0 && !failed && k <= i + tail; ++k) RunTimed(k, 0, 1);
        i += tail;
    }
    return true;
}

// How many calls after this one thread 0 makes by itself.
size_t CpuExecutable::TailOf(const Call& call) const {
    if (call.tail == 0 || probe_ || team_.size() == 1) return 0;
    return call.As<TransferArgs>().rows == 1 ? static_cast<size_t>(call.tail) : 0;
}

void CpuExecutable::RunTimed(size_t index, int part, int parts) {
    const int64_t begin_ns = tracing_ && part == 0 ? NowNs() : 0;
    RunCall(index, part, parts);
    if (part == 0) Done(list_->calls[index], begin_ns);
}

void CpuExecutable::Done(const Call& call, int64_t begin_ns) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (tracing_) timings_.push_back({call.op, begin_ns, NowNs(), LastArrival(call)});
}

// ---- In halves (halves.h) -----------------------------------------------------------------------

// Items are segments of halves, in the order 0a 0b 1a 1b ...
bool CpuExecutable::RunHalves(int part) {
    const size_t items = 2 * (list_->region.sums.size() + 1);
    for (size_t item = 0; item < items; ++item) {
        if (!MeetBetweenHalves(item, part)) return false;
        RunSegment(item, part);
    }
    return MeetBetweenHalves(items, part);
}

// Before an item: its rows are summed, and the sum of the item before goes off.
bool CpuExecutable::MeetBetweenHalves(size_t item, int part) {
    team_.Barrier();
    if (part == 0) {
        FinishSum();
        if (item > 0 && status_.ok()) StartSum(item - 1);
    }
    team_.Barrier();
    // Written before the second barrier, and not again before the next first one.
    return failed_call_.load(std::memory_order_relaxed) == SIZE_MAX;
}

void CpuExecutable::RunSegment(size_t item, int part) {
    const size_t segment = item / 2;
    const std::vector<size_t>& sums = list_->region.sums;
    const size_t begin = segment == 0 ? list_->region.begin : sums[segment - 1] + 1;
    const size_t end = segment == sums.size() ? list_->region.end : sums[segment];
    for (size_t i = begin; i < end; ++i) {
        const Call& call = half_calls_[item % 2][i - list_->region.begin];
        if (call.barrier && i > begin) team_.Barrier();
        const int64_t begin_ns = tracing_ && part == 0 ? NowNs() : 0;
        call.Run(kernels_, part, team_.size());
        if (part == 0) Done(call, begin_ns);
    }
}

void CpuExecutable::StartSum(size_t item) {
    if (item / 2 == list_->region.sums.size()) return;  // the last segments end without one
    sum_.index = list_->region.sums[item / 2];
    sum_.call = &half_calls_[item % 2][sum_.index - list_->region.begin];
    side_.Start([this] {
        sum_.begin_ns = NowNs();
        sum_.status = Transfer(*sum_.call, true);
        sum_.end_ns = NowNs();
    });
}

// The deadlines of the sum bound the wait for it.
void CpuExecutable::FinishSum() {
    if (sum_.call == nullptr) return;
    side_.Wait();
    const Call& call = *std::exchange(sum_.call, nullptr);
    if (!sum_.status.ok()) {
        status_ = std::move(sum_.status);
        failed_call_.store(sum_.index, std::memory_order_relaxed);
        return;
    }
    NoteTransfer(call, 0);
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (tracing_) {
        timings_.push_back({call.op, sum_.begin_ns, sum_.end_ns, LastArrival(call)});
    }
}

void CpuExecutable::RunCall(size_t index, int part, int parts) {
    const Call& call = list_->calls[index];
    call.Run(kernels_, part, parts);
    if (part != 0 || !call.communicates()) return;
    if (Status status = Communicate(call); !status.ok()) {
        status_ = std::move(status);
        failed_call_.store(index, std::memory_order_relaxed);
    }
}

// ---- Communication ------------------------------------------------------------------------------

// aside: beside kernels that run on this core.
Status CpuExecutable::Transfer(const Call& call, bool aside) {
    const program::Op& op = program_.ops[static_cast<size_t>(call.op)];
    net::OpTag tag{program::OpName(op.kind()), call.op, step_->number};
    tag.aside = aside;
    const auto& args = call.As<TransferArgs>();
    return RunTransfer(op, {args.in, args.in_dtype, args.rows, args.in_cols},
                       {args.out, args.out_dtype, args.rows, args.out_cols}, groups_, tag);
}

Status CpuExecutable::Communicate(const Call& call) {
    const bool timed = call.kind == CallKind::kTransfer;  // a sum knows its time
    const int64_t begin_ns = timed ? NowNs() : 0;
    WEFT_TRY(Transfer(call, false));
    NoteTransfer(call, timed ? NowNs() - begin_ns : 0);
    return {};
}

void CpuExecutable::NoteTransfer(const Call& call, int64_t took_ns) {
    const auto& args = call.As<TransferArgs>();
    const HostValue out{args.out, args.out_dtype, args.rows, args.out_cols};
    transfers_.Note(program_.ops[static_cast<size_t>(call.op)], out.bytes(), groups_, took_ns);
}

// ---- Reading ------------------------------------------------------------------------------------

// On thread 0, after the call with this index.
void CpuExecutable::ShowToProbe(size_t index) {
    const Call& call = list_->calls[index];
    const program::Op& op = program_.ops[static_cast<size_t>(call.op)];
    if (op.outputs.empty()) return;
    const program::Value& value = program_.value(op.outputs[0]);
    if (buffers_.values[static_cast<size_t>(op.outputs[0])] == nullptr) return;
    if (value.dtype != DType::kF32 || value.shape.rank != 2) return;
    const size_t rows = call.per_output ? step_->output_rows.size() : step_->tokens.size();
    Status status = probe_(call.op, static_cast<int64_t>(rows));
    if (status.ok()) return;
    status_ = std::move(status);
    failed_call_.store(index, std::memory_order_relaxed);
}

Status CpuExecutable::Read(program::ValueId id, int64_t first, std::span<float> out) {
    const std::byte* data = buffers_.values[static_cast<size_t>(id)];
    WEFT_CHECK(data != nullptr);
    if (out.empty()) return {};
    std::memcpy(out.data(), data + first * static_cast<int64_t>(sizeof(float)), out.size_bytes());
    return {};
}

Status CpuExecutable::ReadTop(program::ValueId id, int64_t row, int64_t columns,
                              std::span<Candidate> out) {
    const std::byte* data = buffers_.values[static_cast<size_t>(id)];
    WEFT_CHECK(data != nullptr);
    const auto* values = reinterpret_cast<const float*>(data);
    TopOf({values + row * program_.value(id).shape[1], static_cast<size_t>(columns)}, out);
    return {};
}

}  // namespace

Result<std::unique_ptr<Executable>> CompileForCpu(const program::Program& program,
                                                  const CompileOptions& options,
                                                  const CpuContext& context) {
    auto executable = std::make_unique<CpuExecutable>(program, options, context.kernels,
                                                      context.team, context.cores);
    WEFT_TRY(executable->Prepare());
    return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace weft::backend
