#include "backend/training.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cpu/compile.h"
#include "backend/cpu/side_thread.h"
#include "backend/cpu/thread_team.h"
#include "backend/cpu/training_experts.h"
#include "backend/cpu/training_loss.h"
#include "backend/cpu/training_memory.h"
#include "backend/cpu/training_ops.h"
#include "backend/cpu/training_overlap.h"
#include "backend/cpu/training_update.h"
#include "base/check.h"
#include "base/deadline.h"
#include "kernels/kernels.h"
#include "program/timeline.h"
#include "tensor/quant.h"

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::ValueId;
namespace dense = kernels::dense;

// 280 x 448 x 512: whole tiles of every instruction set, 1.9 MB of float32 in all.
constexpr int64_t kRows = 280, kCols = 448, kDepth = 512;
constexpr int64_t kMeasureNs = 20'000'000;

// Of one thread: the best of as many products as there is time for.
double PeakOfThread(const dense::DenseKernels& kernels, dense::Compute compute) {
    const std::vector<float> a(kRows * kDepth, 1.0f), b(kCols * kDepth, 1.0f);
    std::vector<float> c(kRows * kCols);
    dense::GemmArgs args;
    args.a = {a.data(), kDepth, 1};
    args.b = {b.data(), kCols, 1};
    args.c = {c.data(), kCols};
    args.m = kRows, args.n = kCols, args.k = kDepth;
    args.compute = compute;
    std::vector<std::byte> scratch(static_cast<size_t>(kernels.gemm_scratch_bytes(args)));
    const int64_t begin_ns = NowNs();
    int64_t best_ns = INT64_MAX, now_ns = begin_ns;
    // (The first one makes the pages.)
    for (int round = 0; round < 3 || now_ns - begin_ns < kMeasureNs; ++round) {
        const int64_t from_ns = now_ns;
        kernels.gemm(args, scratch, 0, 1);
        now_ns = NowNs();
        best_ns = std::min(best_ns, now_ns - from_ns);
    }
    return 2e9 * static_cast<double>(kRows * kCols * kDepth) / static_cast<double>(best_ns);
}

class CpuTraining final : public TrainingExecutable {
  public:
    CpuTraining(program::ChunkedProgram program, const TrainingOptions& options,
                const CpuContext& context)
        : chunked_(std::move(program)),
          options_(options),
          level_(context.level),
          kernels_(context.kernels),
          team_(context.team),
          slots_(static_cast<size_t>(options.slots)),
          side_(context.cores) {}

    Status Plan();

    const program::Program& program() const override { return chunked_.program; }
    Status Read(ValueId id, int64_t first, std::span<std::byte> out) const override {
        std::ranges::copy(BytesOf(id, first, out.size()), out.begin());
        return {};
    }
    Status Write(ValueId id, int64_t first, std::span<const std::byte> bytes) override {
        std::ranges::copy(bytes, BytesOf(id, first, bytes.size()).begin());
        return {};
    }
    void ZeroGradients() override {
        InParts([this](int part, int parts) {
            const std::span<std::byte> all = memory_.gradients();
            const kernels::Range range =
                kernels::Share(static_cast<int64_t>(all.size()), 4096, part, parts);
            std::fill(all.begin() + range.begin, all.begin() + range.end, std::byte{0});
        });
    }
    Status Run(const TrainingStep& step, const Groups& groups) override;
    Status Update(UpdateStage stage, const UpdateStep& step, const Groups& groups) override;
    double loss() const override {
        if (chunk().output == program::kNoValue) return 0;
        return std::accumulate(losses_.begin(), losses_.begin() + outputs_, 0.0);
    }
    std::span<const float> logits() const override {
        return chunk().output == program::kNoValue ? std::span<const float>()
                                                   : std::span(loss_buffers_.predicted);
    }
    double side_loss() const override {
        return chunk().side_output == program::kNoValue ? 0 : experts_.balance;
    }
    Result<std::string> FindNonFinite(const TrainingStep& step, const Groups& groups) override;
    MemoryUse memory() const override {
        return {static_cast<uint64_t>(memory_.state_bytes()), 0,
                static_cast<uint64_t>(memory_.arena_bytes() + scratch_.size_bytes() +
                                      logits_.size_bytes() + unpacked_.size_bytes() +
                                      expert_rows_.size_bytes())};
    }
    double MeasurePeak() override {
        std::vector<double> peaks(static_cast<size_t>(team_.size()));
        InParts([&](int part, int) {
            peaks[static_cast<size_t>(part)] = PeakOfThread(*context_.dense, context_.compute);
        });
        return std::accumulate(peaks.begin(), peaks.end(), 0.0);
    }
    int64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
    double waited_s() const override { return static_cast<double>(waited_ns_) * 1e-9; }
    void TimeOps() override { op_seconds_.assign(program().ops.size(), {}); }
    std::span<const std::vector<float>> op_seconds() const override { return op_seconds_; }

  private:
    using Angles = std::pair<std::vector<float>, float>;
    struct Table {
        Angles angles;
        std::vector<float> data;
    };
    // Of a step under way.
    struct Slot {
        int64_t tokens = 0, outputs = 0;
        std::vector<kernels::Sequence> sequences;
        float loss_gradient = 1;
    };

    const program::Chunk& chunk() const { return chunked_.chunks[chunk_]; }
    // Runs function(part, parts) on all threads.
    using Work = std::function<void(int part, int parts)>;
    void InParts(const Work& work) {
        work_ = &work;
        team_.Run(
            [](void* self, int part) {
                auto* training = static_cast<CpuTraining*>(self);
                (*training->work_)(part, training->team_.size());
            },
            this);
    }
    std::span<std::byte> BytesOf(ValueId id, int64_t first, size_t size) const {
        const program::Value& value = program().value(id);
        const int64_t all = RowBytes(value.dtype, value.shape.Elements(0, 0));
        const auto count = static_cast<int64_t>(size);
        WEFT_CHECK(first >= 0 && count <= all && first <= all - count);
        return {memory_.At(id, 0) + first, size};
    }
    // An input of the chunk that runs, in a slot; null where it has none of this name.
    std::byte* InputAt(const char* name, int slot) const {
        const ValueId id = program::FindIn(chunked_, chunk_, name);
        return id == program::kNoValue ? nullptr : memory_.At(id, slot);
    }
    void PlanTables();
    Status PlanUnpacked();
    int64_t UnpackedBytes(const Op& op, const program::Shape& shape) const;
    Status PlanScratch();
    void BindOperands(size_t begin, size_t end, int slot);
    void BindStep(const TrainingStep& step);
    void ActivateSlot(int slot);
    void ChainTokens(int slot);
    TrainingOperand Operand(ValueId id, int slot) const;
    int64_t OwnRows(int64_t dim) const;
    void BindInts(const char* name, int slot, std::span<const int32_t> ints);
    Status RunOps(size_t begin, size_t end);
    void Walk(int part);
    void ComputeTables(int part);
    bool RunOp(size_t i, int part);
    bool WaitFor(size_t i, int part);
    void CommunicateFor(size_t i);
    Status WaitForSide(size_t job);
    std::string NonFinite(const TrainingCall& call) const;

    program::ChunkedProgram chunked_;
    size_t chunk_ = 0;  // that runs
    TrainingOptions options_;
    CpuLevel level_;
    const kernels::Kernels& kernels_;
    ThreadTeam& team_;
    TrainingMemory memory_;
    Memory scratch_, logits_, unpacked_, expert_rows_;
    std::vector<Table> tables_;
    std::vector<TrainingCall> calls_;  // by op
    std::vector<Slot> slots_;
    int64_t tokens_ = 0, outputs_ = 0;  // of the slot that runs
    const int32_t* positions_ = nullptr;
    size_t first_op_ = 0, end_op_ = 0;
    bool is_pass_ = true;        // else an update
    std::vector<float> losses_;  // of each output row
    std::vector<double> sums_;   // TrainingContext::sums
    LossBuffers loss_buffers_;
    ExpertBuffers experts_;
    TrainingContext context_;
    bool checks_ = false;
    std::string found_;
    Status status_;
    std::atomic<size_t> failed_at_{SIZE_MAX};  // the op
    std::atomic<int64_t> progress_{0};
    const Work* work_ = nullptr;
    int64_t waited_ns_ = 0;
    std::vector<std::vector<float>> op_seconds_;
    // With overlap, by op: which op that runs beside it waits for; the job of each of those.
    std::vector<size_t> waits_;
    std::vector<int64_t> jobs_;
    // Of each job, written by the side thread: read when it was waited for. The first error is that
    // of all jobs behind it.
    std::vector<Status> side_statuses_;
    Status side_failed_;  // the side thread's own
    Status ended_;        // of a step that left jobs behind: none is run after it
    SideThread side_;
};

// One table for each distinct set of RoPE frequencies, filled once a pass.
void CpuTraining::PlanTables() {
    std::vector<size_t> of_op(program().ops.size(), SIZE_MAX);
    for (size_t i = 0; i < program().ops.size(); ++i) {
        const auto* rope = program().ops[i].attributes.If<program::Rope>();
        if (rope == nullptr) continue;
        const Angles angles{rope->inverse_frequency, rope->magnitude};
        const auto known = std::ranges::find(tables_, angles, &Table::angles);
        of_op[i] = static_cast<size_t>(known - tables_.begin());
        if (known != tables_.end()) continue;
        tables_.push_back({angles, {}});
        tables_.back().data.resize(static_cast<size_t>(options_.max_tokens * rope->rotary_dim));
    }
    for (size_t i = 0; i < of_op.size(); ++i) {
        if (of_op[i] != SIZE_MAX) calls_[i].table = tables_[of_op[i]].data.data();
    }
}

Status CpuTraining::Plan() {
    const program::Program& p = program();
    for (size_t i = 0; i < p.ops.size(); ++i) {
        const Op& op = p.ops[i];
        const bool wide = i < chunked_.chunks.back().end && !op.outputs.empty() &&
                          p.value(op.outputs[0]).dtype == DType::kF64;
        if (IsTrainingOp(op) && !wide) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "program op {} ({}) can not be trained on the CPU backend", i,
                         program::OpName(op.kind()));
    }
    calls_.resize(p.ops.size());
    for (size_t i = 0; i < p.ops.size(); ++i) {
        calls_[i].op = &p.ops[i];
        calls_[i].in.resize(p.ops[i].inputs.size());
        calls_[i].out.resize(p.ops[i].outputs.size());
    }
    WEFT_TRY(memory_.Plan(chunked_, options_.max_tokens, options_.max_outputs, options_.slots,
                          options_.overlap));
    if (options_.overlap) {
        waits_ = PlanWaits(p, memory_, options_.max_tokens, options_.max_outputs);
    }
    losses_.resize(static_cast<size_t>(options_.max_outputs));
    context_.losses = losses_.data();
    context_.sums = &sums_;
    context_.loss_buffers = &loss_buffers_;
    context_.experts = &experts_;
    PlanTables();
    context_.kernels = &kernels_;
    context_.dense = &dense::DenseKernelsFor(level_);
    using dense::Compute;
    context_.compute = options_.compute == DType::kBF16 ? Compute::kBf16 : Compute::kF32;
    context_.level = level_;
    const program::Update& update = chunked_.update;
    BindOperands(update.sum_begin, update.end, 0);
    WEFT_TRY(PlanUnpacked());
    return PlanScratch();
}

// Before there is a group, the most that a rank may have.
int64_t CpuTraining::OwnRows(int64_t dim) const {
    const int64_t ranks = program::SharingRanks(dim);
    if (context_.groups.tensor == nullptr) return (tokens_ + ranks - 1) / ranks;
    const std::vector<int64_t> parts = RowParts(tokens_, ranks);
    return parts[static_cast<size_t>(context_.groups.tensor->rank())];
}

TrainingOperand CpuTraining::Operand(ValueId id, int slot) const {
    const program::Value& value = program().value(id);
    int64_t first = value.shape[0];
    if (first == program::kTokens) first = tokens_;
    if (first == program::kOutputs) first = outputs_;
    if (program::SharingRanks(first) > 0) first = OwnRows(first);
    std::byte* data = memory_.At(id, slot);
    if (value.shape.rank == 1) return {{data, value.dtype, 1, first}};
    if (value.shape.rank == 2) return {{data, value.dtype, first, value.shape[1]}};
    return {{data, value.dtype, first * value.shape[1], value.shape[2]}, first};
}

// One matrix, for the largest weight of a block type that a product reads.
Status CpuTraining::PlanUnpacked() {
    int64_t bytes = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
        const Op& op = *calls_[i].op;
        const std::optional<size_t> weight = program::WeightInput(op.kind());
        for (size_t at = 0; at < op.inputs.size(); ++at) {
            const program::Value& value = program().value(op.inputs[at]);
            if (!Info(value.dtype).quantized) continue;
            if (weight == at) {
                bytes = std::max(bytes, UnpackedBytes(op, value.shape));
            } else if (op.kind() != OpKind::kEmbedding) {
                return MakeError(ErrorCode::kUnsupported,
                                 "program op {} ({}): {} of {} can not be read in training", i,
                                 program::OpName(op.kind()), value.name, Info(value.dtype).name);
            }
        }
    }
    WEFT_ASSIGN(unpacked_, Memory::Allocate(bytes, "an unpacked weight"));
    return {};
}

// Of what is widened at a time.
int64_t CpuTraining::UnpackedBytes(const Op& op, const program::Shape& shape) const {
    const int64_t matrices = shape.rank == 3 ? shape[0] : 1;
    const int64_t elements = shape.Elements(0, 0) / matrices;
    if (!IsLossOp(op.kind())) return RowBytes(options_.compute, elements);
    const int64_t row_bytes = RowBytes(options_.compute, shape[1]);
    return WidenedRows(shape[0], row_bytes) * row_bytes;
}

// For the largest step.
Status CpuTraining::PlanScratch() {
    slots_[0] = {options_.max_tokens,
                 options_.max_outputs,
                 {{0, static_cast<int32_t>(options_.max_tokens), 0, {}}},
                 1};
    for (chunk_ = chunked_.chunks.size(); chunk_-- > 0;) ActivateSlot(0);
    chunk_ = 0;
    int64_t logits_bytes = 0, expert_bytes = 0;
    for (const TrainingCall& call : calls_) {
        context_.scratch_bytes = std::max(context_.scratch_bytes, ScratchBytes(call, context_));
        logits_bytes = std::max(logits_bytes, LogitsBytes(call));
        expert_bytes = std::max(expert_bytes, ExpertRowsBytes(call));
    }
    context_.scratch_bytes = (context_.scratch_bytes / 64 + 1) * 64;
    WEFT_ASSIGN(scratch_, Memory::Allocate(context_.scratch_bytes * team_.size(), "scratch"));
    context_.scratch = {scratch_.data(), static_cast<size_t>(scratch_.size_bytes())};
    WEFT_ASSIGN(logits_, Memory::Allocate(logits_bytes, "logits"));
    context_.logits = reinterpret_cast<float*>(logits_.data());
    WEFT_ASSIGN(expert_rows_, Memory::Allocate(expert_bytes, "rows of experts"));
    experts_.rows = expert_rows_.data();
    return {};
}

void CpuTraining::BindOperands(size_t begin, size_t end, int slot) {
    for (size_t c = begin; c < end; ++c) {
        TrainingCall& call = calls_[c];
        for (size_t i = 0; i < call.in.size(); ++i) call.in[i] = Operand(call.op->inputs[i], slot);
        for (size_t i = 0; i < call.out.size(); ++i) {
            call.out[i] = Operand(call.op->outputs[i], slot);
        }
        const std::optional<size_t> weight = program::WeightInput(call.op->kind());
        if (!weight || !Info(call.in[*weight].dtype).quantized) continue;
        call.packed = call.in[*weight];
        call.in[*weight].data = unpacked_.data();
        call.in[*weight].dtype = options_.compute;
    }
}

void CpuTraining::BindInts(const char* name, int slot, std::span<const int32_t> ints) {
    std::byte* input = InputAt(name, slot);
    if (input != nullptr) std::memcpy(input, ints.data(), ints.size_bytes());
}

void CpuTraining::BindStep(const TrainingStep& step) {
    Slot& slot = slots_[static_cast<size_t>(step.slot)];
    slot.tokens = static_cast<int64_t>(step.tokens.size());
    slot.outputs = static_cast<int64_t>(step.output_rows.size());
    BindInts("tokens", step.slot, step.tokens);
    BindInts("positions", step.slot, step.positions);
    BindInts("output_rows", step.slot, step.output_rows);
    BindInts("targets", step.slot, step.targets);
    slot.loss_gradient = step.loss_gradient;
    const auto bind = [&](ValueId gradient, float number) {
        if (gradient == program::kNoValue) return;
        std::memcpy(memory_.At(gradient, step.slot), &number, sizeof(float));
    };
    bind(chunk().output_gradient, step.loss_gradient);
    bind(chunk().side_gradient, step.side_gradient);
    slot.sequences.clear();
    for (const StepSequence& s : step.sequences) {
        slot.sequences.push_back({s.row_begin, s.row_count, 0, {}});
    }
}

void CpuTraining::ActivateSlot(int number) {
    const Slot& slot = slots_[static_cast<size_t>(number)];
    tokens_ = slot.tokens;
    outputs_ = slot.outputs;
    BindOperands(chunk().begin, chunk().end, number);
    const std::byte* positions = InputAt("positions", number);
    if (positions != nullptr) positions_ = reinterpret_cast<const int32_t*>(positions);
    context_.sequences = slot.sequences;
    ChainTokens(number);
    context_.loss_gradient = slot.loss_gradient;
}

void CpuTraining::ChainTokens(int slot) {
    TokenChains& chains = context_.chains;
    chains.next.assign(static_cast<size_t>(tokens_), -1);
    chains.is_first.assign(static_cast<size_t>(tokens_), true);
    const auto* tokens = reinterpret_cast<const int32_t*>(InputAt("tokens", slot));
    if (tokens == nullptr) return;
    std::unordered_map<int32_t, int32_t> last;
    for (int32_t i = 0; i < static_cast<int32_t>(tokens_); ++i) {
        const auto [known, is_new] = last.try_emplace(tokens[i], i);
        if (is_new) continue;
        chains.next[static_cast<size_t>(known->second)] = i;
        chains.is_first[static_cast<size_t>(i)] = false;
        known->second = i;
    }
}

Status CpuTraining::Run(const TrainingStep& step, const Groups& groups) {
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    const auto outputs = static_cast<int64_t>(step.output_rows.size());
    WEFT_CHECK(step.slot >= 0 && step.slot < options_.slots);
    WEFT_CHECK(step.chunk >= 0 && static_cast<size_t>(step.chunk) < chunked_.chunks.size());
    chunk_ = static_cast<size_t>(step.chunk);
    if (step.pass != backend::Pass::kBackward && (tokens < 1 || tokens > options_.max_tokens ||
                                                  outputs < 1 || outputs > options_.max_outputs)) {
        return MakeError(
            ErrorCode::kUsage,
            "a training step of {} rows with {} targets: expected 1 to {}, and 1 to {}", tokens,
            outputs, options_.max_tokens, options_.max_outputs);
    }
    if (!ended_.ok()) return ended_;
    if (step.pass != backend::Pass::kBackward) BindStep(step);
    context_.groups = groups;
    ActivateSlot(step.slot);
    context_.step = step.number;
    context_.predicts = step.pass == backend::Pass::kPredict;
    context_.evaluates = step.pass == backend::Pass::kEvaluate || context_.predicts;
    const program::Chunk& runs = chunk();
    const bool whole = step.pass == backend::Pass::kBackward || step.pass == backend::Pass::kBoth;
    is_pass_ = true;
    return RunOps(step.pass == backend::Pass::kBackward ? runs.backward_begin : runs.begin,
                  whole ? runs.end : runs.backward_begin);
}

Status CpuTraining::Update(UpdateStage stage, const UpdateStep& step, const Groups& groups) {
    if (!ended_.ok()) return ended_;
    context_.groups = groups;
    context_.step = step.number;
    context_.update = step;
    const program::Update& update = chunked_.update;
    is_pass_ = false;
    if (stage == UpdateStage::kSum) return RunOps(update.sum_begin, update.apply_begin);
    return RunOps(update.apply_begin, update.end);
}

Status CpuTraining::RunOps(size_t begin, size_t end) {
    first_op_ = begin;
    end_op_ = end;
    status_ = {};
    failed_at_ = SIZE_MAX;
    loss_buffers_.failed = false;
    jobs_.assign(calls_.size() + 1, 0);
    side_statuses_.assign(jobs_.size(), Status());
    experts_.ids = program::kNoValue;
    team_.Run([](void* self, int part) { static_cast<CpuTraining*>(self)->Walk(part); }, this);
    // (After an error jobs may still wait for ranks that learn of it when this one has said so.)
    const auto last = std::ranges::max_element(jobs_) - jobs_.begin();
    if (status_.ok()) status_ = WaitForSide(static_cast<size_t>(last));
    if (!waits_.empty()) ended_ = status_;
    return std::move(status_);
}

Result<std::string> CpuTraining::FindNonFinite(const TrainingStep& step, const Groups& groups) {
    checks_ = true;
    found_.clear();
    const Status status = Run(step, groups);
    checks_ = false;
    if (!status.ok()) return status.error();
    return found_;
}

std::string CpuTraining::NonFinite(const TrainingCall& call) const {
    for (size_t i = 0; i < call.out.size(); ++i) {
        const TrainingOperand& x = call.out[i];
        const program::Value& value = program().value(call.op->outputs[i]);
        if (x.dtype == DType::kI32) continue;
        if (value.name.ends_with(".lse")) continue;  // (the padding behind a backend's own layout)
        std::vector<float> row(static_cast<size_t>(x.cols));
        const int64_t row_bytes = RowBytes(x.dtype, x.cols);
        for (int64_t r = 0; r < x.rows; ++r) {
            DequantizeRow(x.dtype, {x.data + r * row_bytes, static_cast<size_t>(row_bytes)}, row);
            if (std::ranges::all_of(row, [](float v) { return std::isfinite(v); })) continue;
            return fmt::format("op {} ({}) {}", call.op - program().ops.data(),
                               program::OpName(call.op->kind()), value.name);
        }
    }
    return "";
}

void CpuTraining::ComputeTables(int part) {
    for (Table& table : tables_) {
        kernels::RopeTableArgs args;
        args.positions = positions_;
        args.inverse_frequency = table.angles.first.data();
        args.rows = tokens_;
        args.rotary_dim = static_cast<int64_t>(table.angles.first.size()) * 2;
        args.out = table.data.data();
        args.magnitude = table.angles.second;
        kernels_.rope_table(args, part, team_.size());
    }
}

void CpuTraining::Walk(int part) {
    if (is_pass_) ComputeTables(part);
    team_.Barrier();
    for (size_t i = first_op_; i < end_op_; ++i) {
        const bool timed = part == 0 && !op_seconds_.empty();
        const int64_t begin_ns = timed ? NowNs() : 0;
        if (!RunOp(i, part)) return;
        if (timed) op_seconds_[i].push_back(static_cast<float>(SecondsSince(begin_ns)));
    }
}

// job: its place in jobs_.
Status CpuTraining::WaitForSide(size_t job) {
    if (jobs_[job] == 0) return {};
    const int64_t begin_ns = NowNs();
    coll::Comm* group =
        context_.groups.data != nullptr ? context_.groups.data : context_.groups.tensor;
    side_.Wait(jobs_[job], group);
    waited_ns_ += NowNs() - begin_ns;
    return side_statuses_[job];
}

// Before op i: for what runs beside and touches its bytes. False: that failed.
bool CpuTraining::WaitFor(size_t i, int part) {
    if (waits_.empty() || jobs_[waits_[i]] == 0) return true;
    if (part == 0) {
        if (Status status = WaitForSide(waits_[i]); !status.ok()) {
            status_ = std::move(status);
            failed_at_ = i;
        }
    }
    team_.Barrier();
    return failed_at_.load(std::memory_order_relaxed) > i;
}

// Thread 0: all of it, or its start.
void CpuTraining::CommunicateFor(size_t i) {
    const TrainingCall& call = calls_[i];
    if (is_pass_ && !waits_.empty() && !checks_ && program::RunsBeside(call.op->kind())) {
        jobs_[i + 1] = side_.Start([this, i, &call] {
            if (side_failed_.ok()) side_failed_ = Communicate(call, context_);
            side_statuses_[i + 1] = side_failed_;
        });
        return;
    }
    const int64_t begin_ns = NowNs();
    Status status = Communicate(call, context_);
    waited_ns_ += NowNs() - begin_ns;
    if (status.ok()) return;
    status_ = std::move(status);
    failed_at_ = i;
}

// False: communication failed; all threads say so after the same op.
bool CpuTraining::RunOp(size_t i, int part) {
    const TrainingCall& call = calls_[i];
    if (!WaitFor(i, part)) return false;
    const bool is_expert_op = IsExpertOp(call.op->kind());
    const bool widens = is_expert_op || IsLossOp(call.op->kind());  // a part of it at a time
    const OpTeam team{part, team_.size(), [this] { team_.Barrier(); }};
    if (call.packed.data != nullptr && !widens) {
        Unpack(call, context_, part, team_.size());
        team_.Barrier();
    }
    if (IsLossOp(call.op->kind())) {
        const Status status = ComputeLoss(call, context_, team);
        if (part == 0 && !status.ok()) {
            status_ = status;
            failed_at_ = i;
        }
    } else if (is_expert_op) {
        ComputeExperts(call, context_, team);
    } else if (program::IsTransfer(call.op->kind())) {
        if (part == 0) CommunicateFor(i);
    } else if (program::IsOfUpdate(call.op->kind())) {
        ComputeUpdate(call, context_, team);
    } else {
        Compute(call, context_, part, team_.size());
    }
    if (part == 0) progress_.fetch_add(1, std::memory_order_relaxed);
    team_.Barrier();
    if (checks_) {
        if (part == 0 && found_.empty()) found_ = NonFinite(call);
        team_.Barrier();
    }
    // (Thread 0 may be in the next op by now, and fail in it.)
    return failed_at_.load(std::memory_order_relaxed) > i;
}

}  // namespace

Result<std::unique_ptr<TrainingExecutable>> CompileTrainingForCpu(program::ChunkedProgram program,
                                                                  const TrainingOptions& options,
                                                                  const CpuContext& context) {
    auto training = std::make_unique<CpuTraining>(std::move(program), options, context);
    WEFT_TRY(training->Plan());
    return std::unique_ptr<TrainingExecutable>(std::move(training));
}

}  // namespace weft::backend
