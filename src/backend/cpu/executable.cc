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
#include "base/hash.h"
#include "tensor/quant.h"

namespace weft::backend {
namespace {

using kernels::Sequence;

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
    Status Read(program::ValueId id, std::span<float> out) override;
    const float* View(program::ValueId id) const override;

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
    bool ends_with_exchange() const override {
        const std::vector<Call>& calls = plain_.calls;
        const size_t count = calls.size();
        return count > 2 && std::holds_alternative<SendCall>(calls[count - 2].args) &&
               std::holds_alternative<RecvCall>(calls[count - 1].args);
    }
    std::span<const float> all_reduce_us() const override { return all_reduce_us_; }
    double waited_s() const override { return static_cast<double>(waited_ns_) * 1e-9; }
    void SetChecking(bool on) override { checking_ = on; }
    uint64_t ReplicaChecksum() const override { return checksum_; }
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
        if (options_.overlap != Overlap::kNever) list.region = FindHalves(list.calls, kernels_);
    }

    Status LoadVector(const program::Value& value, std::byte* out, const RowSource& source) const;
    Status LoadVectors(const program::Value& value, std::byte* out, const RowSource& source) const;
    using Pack = decltype(kernels::Kernels::pack);
    Status LoadMatrix(const kernels::PackedMatrix& matrix, int64_t first_row,
                      const RowSource& source, Pack pack) const;
    Status CheckStep(const Step& step) const;
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
    Status Communicate(const Call& call);
    Status Sum(const AllReduceCall& args, const net::OpTag& tag);
    void NoteSum(const AllReduceCall& args);
    void AddToChecksum(std::span<const float> data) {
        if (checking_) checksum_ = Checksum64(std::as_bytes(data), checksum_);
    }
    void ShowToProbe(const Call& call);
    int64_t LastArrival(const Call& call) const;
    net::OpTag Tag(const Call& call, const char* name) const {
        return {name, call.op, step_->number};
    }

    Status Communicate(const Call& call, const AllReduceCall& args);
    Status Communicate(const Call& call, const AllGatherCall& args);
    Status Communicate(const Call& call, const SendCall& args);
    Status Communicate(const Call& call, const RecvCall& args);

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
    std::vector<float> all_reduce_us_;
    int64_t waited_ns_ = 0;
    bool checking_ = false;
    uint64_t checksum_ = 0;
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
    WEFT_TRY(CheckStep(step));
    step_ = &step;
    groups_ = groups;
    status_ = {};
    failed_call_ = SIZE_MAX;
    timings_.clear();
    all_reduce_us_.clear();
    checksum_ = 0;
    Bind(step);
    team_.Run([](void* self, int part) { static_cast<CpuExecutable*>(self)->RunPart(part); }, this);
    return std::move(status_);
}

// What a step may hold is the engine's own doing: anything else is a bug.
Status CpuExecutable::CheckStep(const Step& step) const {
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    WEFT_CHECK(step.part == StepPart::kWhole || ends_with_exchange());
    WEFT_CHECK(tokens > 0 && tokens <= options_.max_tokens);
    WEFT_CHECK(step.positions.size() == step.tokens.size());
    WEFT_CHECK(static_cast<int64_t>(step.output_rows.size()) <= options_.max_outputs);
    for (const StepSequence& sequence : step.sequences) {
        const int64_t end = sequence.position + sequence.row_count;
        WEFT_CHECK(sequence.row_begin >= 0 && sequence.row_begin + sequence.row_count <= tokens);
        WEFT_CHECK(end <= static_cast<int64_t>(sequence.pages.size()) * options_.page_tokens);
        WEFT_CHECK(sequence.adapter >= 0);
        for (int32_t page : sequence.pages) WEFT_CHECK(page >= 0 && page < options_.kv_pages);
    }
    for (const auto& [from, to] : step.copies) {
        WEFT_CHECK(from >= 0 && from < options_.kv_pages && to >= 0 && to < options_.kv_pages);
    }
    for (int32_t row : step.output_rows) WEFT_CHECK(row >= 0 && row < tokens);
    return {};
}

// Sets what a step binds in one call's arguments.
struct StepBinder {
    const Step& step;
    std::span<const Sequence> sequences;
    std::span<const kernels::AdaptedRow> adapted;
    int64_t rows;

    void operator()(kernels::PrepareArgs& a) const { a.rows = rows; }
    void operator()(kernels::MatMulArgs& a) const { a.rows = rows; }
    void operator()(kernels::EmbeddingArgs& a) const {
        a.tokens = step.tokens.data();
        a.count = rows;
    }
    void operator()(kernels::RmsNormArgs& a) const { a.rows = rows; }
    void operator()(kernels::SumSquaresArgs& a) const { a.rows = rows; }
    void operator()(kernels::RopeTableArgs& a) const {
        a.positions = step.positions.data();
        a.rows = rows;
    }
    void operator()(kernels::RopeArgs& a) const { a.rows = rows; }
    void operator()(kernels::KvWriteArgs& a) const { a.sequences = sequences; }
    void operator()(kernels::AttentionArgs& a) const { a.sequences = sequences; }
    void operator()(kernels::GluArgs& a) const { a.rows = rows; }
    void operator()(kernels::AddBiasArgs& a) const { a.rows = rows; }
    void operator()(kernels::ScaleArgs& a) const { a.rows = rows; }
    void operator()(kernels::SoftCapArgs& a) const { a.rows = rows; }
    void operator()(kernels::RouteArgs& a) const { a.rows = rows; }
    void operator()(kernels::PlanExpertsArgs& a) const { a.rows = rows; }
    void operator()(kernels::ExpertMatMulArgs&) const {}
    void operator()(kernels::ExpertSumArgs& a) const { a.rows = rows; }
    void operator()(kernels::HeadMatMulArgs& a) const { a.rows = rows; }
    void operator()(kernels::GateRowsArgs& a) const { a.rows = rows; }
    void operator()(kernels::PickColumnsArgs& a) const { a.rows = rows; }
    void operator()(kernels::LatentWriteArgs& a) const { a.sequences = sequences; }
    void operator()(kernels::LatentAttentionArgs& a) const { a.sequences = sequences; }
    void operator()(kernels::AdaptDownArgs& a) const { a.rows = adapted; }
    void operator()(kernels::AdaptUpArgs& a) const {
        a.rows = adapted;
        a.all_rows = rows;
    }
    template <typename Args>
    void operator()(OfExperts<Args>&) const {}
    void operator()(AddCall& a) const { a.add.count = rows * a.cols; }
    void operator()(SelectRowsCall& a) const {
        a.row_ids = step.output_rows.data();
        a.rows = rows;
    }
    void operator()(AllReduceCall& a) const { a.rows = rows; }
    void operator()(AllGatherCall& a) const { a.rows = rows; }
    void operator()(SendCall& a) const { a.rows = rows; }
    void operator()(RecvCall& a) const { a.rows = rows; }
};

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
        std::visit(StepBinder{step, sequences_, adapted_rows_,
                              static_cast<int64_t>(rows) * call.row_factor},
                   call.args);
    }
    in_halves_ = UsesHalves();
    if (in_halves_) BindHalves();
}

// Runs one part of a call.
struct CallRunner {
    const kernels::Kernels& kernels;
    int part, parts;

    void operator()(const kernels::PrepareArgs& a) const { kernels.prepare(a, part, parts); }
    void operator()(const kernels::MatMulArgs& a) const { kernels.matmul(a, part, parts); }
    void operator()(const kernels::EmbeddingArgs& a) const { kernels.embedding(a, part, parts); }
    void operator()(const kernels::RmsNormArgs& a) const { kernels.rms_norm(a, part, parts); }
    void operator()(const kernels::SumSquaresArgs& a) const { kernels.sum_squares(a, part, parts); }
    void operator()(const kernels::RopeTableArgs& a) const { kernels.rope_table(a, part, parts); }
    void operator()(const kernels::RopeArgs& a) const { kernels.rope(a, part, parts); }
    void operator()(const kernels::KvWriteArgs& a) const { kernels.kv_write(a, part, parts); }
    void operator()(const kernels::AttentionArgs& a) const { kernels.attention(a, part, parts); }
    void operator()(const kernels::GluArgs& a) const { kernels.glu(a, part, parts); }
    void operator()(const kernels::AddBiasArgs& a) const { kernels.add_bias(a, part, parts); }
    void operator()(const kernels::ScaleArgs& a) const { kernels.scale(a, part, parts); }
    void operator()(const kernels::SoftCapArgs& a) const { kernels.soft_cap(a, part, parts); }
    void operator()(const kernels::RouteArgs& a) const { kernels::Route(a, part, parts); }
    void operator()(const kernels::PlanExpertsArgs& a) const {
        kernels::PlanExperts(a, part, parts);
    }
    void operator()(const kernels::ExpertMatMulArgs& a) const {
        kernels::ExpertMatMul(kernels, a, part, parts);
    }
    void operator()(const kernels::ExpertSumArgs& a) const {
        kernels::ExpertSum(kernels, a, part, parts);
    }
    void operator()(const kernels::HeadMatMulArgs& a) const {
        kernels::HeadMatMul(kernels, a, part, parts);
    }
    void operator()(const kernels::GateRowsArgs& a) const { kernels::GateRows(a, part, parts); }
    void operator()(const kernels::PickColumnsArgs& a) const {
        kernels::PickColumns(a, part, parts);
    }
    void operator()(const kernels::LatentWriteArgs& a) const {
        kernels::LatentWrite(a, part, parts);
    }
    void operator()(const kernels::LatentAttentionArgs& a) const {
        kernels::LatentAttentionFor(kernels.level)(a, part, parts);
    }
    void operator()(const kernels::AdaptDownArgs& a) const {
        kernels::AdaptKernelsFor(kernels.level).down(a, part, parts);
    }
    void operator()(const kernels::AdaptUpArgs& a) const {
        kernels::AdaptKernelsFor(kernels.level).up(a, part, parts);
    }
    template <typename Args>
    void operator()(const OfExperts<Args>& a) const {
        Args args = a.args;
        args.rows = *a.rows;
        (*this)(args);
    }
    void operator()(const AddCall& a) const { kernels.add(a.add, part, parts); }
    void operator()(const SelectRowsCall& a) const {
        const kernels::Range range = kernels::Share(a.rows, 1, part, parts);
        for (int64_t row = range.begin; row < range.end; ++row) {
            std::memcpy(a.y + row * a.cols, a.x + a.row_ids[row] * a.cols,
                        static_cast<size_t>(a.cols) * sizeof(float));
        }
    }
    void operator()(const AllReduceCall&) const {}
    void operator()(const AllGatherCall&) const {}
    void operator()(const SendCall&) const {}
    void operator()(const RecvCall&) const {}
};

bool CpuExecutable::UsesHalves() const {
    const auto rows = static_cast<int64_t>(step_->tokens.size());
    if (list_->region.sums.empty() || groups_.tensor == nullptr || probe_ || rows < 2) return false;
    if (groups_.tensor->size() == 1) return false;
    if (options_.overlap == Overlap::kAlways) return true;
    const auto& sum = std::get<AllReduceCall>(list_->calls[list_->region.sums[0]].args);
    const int64_t bytes =
        rows * sum.cols *
        static_cast<int64_t>(sum.wide != nullptr ? sizeof(double) : sizeof(float));
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
            WEFT_CHECK(ShiftRows(call, begin, count, half_sequences_[half], kernels_,
                                 half_adapted_[half]));
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
            if (part == 0) ShowToProbe(call);
            team_.Barrier();
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
    return std::get<AllReduceCall>(call.args).rows == 1 ? static_cast<size_t>(call.tail) : 0;
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
        std::visit(CallRunner{kernels_, part, team_.size()}, call.args);
        if (part == 0) Done(call, begin_ns);
    }
}

void CpuExecutable::StartSum(size_t item) {
    if (item / 2 == list_->region.sums.size()) return;  // the last segments end without one
    sum_.index = list_->region.sums[item / 2];
    sum_.call = &half_calls_[item % 2][sum_.index - list_->region.begin];
    side_.Start([this] {
        net::OpTag tag = Tag(*sum_.call, "all_reduce");
        tag.aside = true;
        sum_.begin_ns = NowNs();
        sum_.status = Sum(std::get<AllReduceCall>(sum_.call->args), tag);
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
    NoteSum(std::get<AllReduceCall>(call.args));
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (tracing_) {
        timings_.push_back({call.op, sum_.begin_ns, sum_.end_ns, LastArrival(call)});
    }
}

void CpuExecutable::RunCall(size_t index, int part, int parts) {
    Call& call = list_->calls[index];
    std::visit(CallRunner{kernels_, part, parts}, call.args);
    if (part != 0 || !Communicates(call)) return;
    if (Status status = Communicate(call); !status.ok()) {
        status_ = std::move(status);
        failed_call_.store(index, std::memory_order_relaxed);
    }
}

// ---- Communication ------------------------------------------------------------------------------

Status CpuExecutable::Communicate(const Call& call) {
    if (const auto* a = std::get_if<AllReduceCall>(&call.args)) return Communicate(call, *a);
    if (const auto* a = std::get_if<AllGatherCall>(&call.args)) return Communicate(call, *a);
    if (const auto* a = std::get_if<SendCall>(&call.args)) return Communicate(call, *a);
    if (const auto* a = std::get_if<RecvCall>(&call.args)) return Communicate(call, *a);
    return {};
}

Status CpuExecutable::Communicate(const Call& call, const AllReduceCall& args) {
    WEFT_TRY(Sum(args, Tag(call, "all_reduce")));
    NoteSum(args);
    return {};
}

Status CpuExecutable::Sum(const AllReduceCall& args, const net::OpTag& tag) {
    const size_t count = static_cast<size_t>(args.rows * args.cols);
    const std::span<float> sum(args.y, count);
    if (args.wide != nullptr) {
        return groups_.tensor->AllReduce(std::span(args.wide, count), sum, tag);
    }
    std::memcpy(args.y, args.x, count * sizeof(float));
    return groups_.tensor->AllReduce(sum, tag);
}

void CpuExecutable::NoteSum(const AllReduceCall& args) {
    const coll::Timing& timing = groups_.tensor->last_timing();
    all_reduce_us_.push_back(static_cast<float>(timing.end_ns - timing.last_arrival_ns) * 1e-3f);
    waited_ns_ += timing.last_arrival_ns - timing.begin_ns;
    AddToChecksum({args.y, static_cast<size_t>(args.rows * args.cols)});
}

Status CpuExecutable::Communicate(const Call& call, const AllGatherCall& args) {
    for (int64_t row = 0; row < args.rows; ++row) {
        float* all = args.y + row * args.cols;
        std::memcpy(all + args.begin, args.x + row * args.mine,
                    static_cast<size_t>(args.mine) * sizeof(float));
        WEFT_TRY(groups_.tensor->AllGather(
            std::as_writable_bytes(std::span(all, static_cast<size_t>(args.cols))), args.part_bytes,
            Tag(call, "all_gather")));
    }
    AddToChecksum({args.y, static_cast<size_t>(args.rows * args.cols)});
    return {};
}

Status CpuExecutable::Communicate(const Call& call, const SendCall& args) {
    const std::span<const float> data(args.x, static_cast<size_t>(args.rows * args.cols));
    return groups_.world->Send(std::as_bytes(data), args.peer, Tag(call, "send"));
}

Status CpuExecutable::Communicate(const Call& call, const RecvCall& args) {
    const std::span<float> data(args.y, static_cast<size_t>(args.rows * args.cols));
    const int64_t begin_ns = NowNs();
    Status status = groups_.world->Recv(std::as_writable_bytes(data), args.peer, Tag(call, "recv"));
    waited_ns_ += NowNs() - begin_ns;
    return status;
}

void CpuExecutable::ShowToProbe(const Call& call) {
    const program::Op& op = program_.ops[static_cast<size_t>(call.op)];
    if (op.outputs.empty()) return;
    const program::Value& value = program_.value(op.outputs[0]);
    const std::byte* data = buffers_.values[static_cast<size_t>(op.outputs[0])];
    if (data == nullptr || value.dtype != DType::kF32 || value.shape.rank != 2) return;
    const size_t rows = call.per_output ? step_->output_rows.size() : step_->tokens.size();
    const auto columns = static_cast<size_t>(value.shape[1]);
    probe_(call.op, {reinterpret_cast<const float*>(data), rows * columns},
           static_cast<int64_t>(rows));
}

// When the slowest rank arrived, for calls that wait for others in the tensor group.
int64_t CpuExecutable::LastArrival(const Call& call) const {
    const bool grouped = std::holds_alternative<AllReduceCall>(call.args) ||
                         std::holds_alternative<AllGatherCall>(call.args);
    return grouped ? groups_.tensor->last_timing().last_arrival_ns : 0;
}

Status CpuExecutable::Read(program::ValueId id, std::span<float> out) {
    const std::byte* data = buffers_.values[static_cast<size_t>(id)];
    WEFT_CHECK(data != nullptr);
    std::memcpy(out.data(), data, out.size_bytes());
    return {};
}

const float* CpuExecutable::View(program::ValueId id) const {
    return reinterpret_cast<const float*>(buffers_.values[static_cast<size_t>(id)]);
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
