#include "backend/cpu/training.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/memory.h"
#include "backend/cpu/thread_team.h"
#include "backend/cpu/training_ops.h"
#include "base/check.h"
#include "kernels/kernels.h"
#include "program/arena.h"

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::ValueId;

constexpr int64_t kAlignFloats = 16;

int64_t Align(int64_t floats) {
    return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

class CpuTraining final : public TrainingExecutable {
  public:
    CpuTraining(TrainingProgram program, const TrainingOptions& options)
        : differentiated_(std::move(program.differentiated)),
          loss_(program.loss),
          options_(options),
          kernels_(kernels::KernelsFor(options.cpu.level)),
          team_({options.cpu.threads, options.cpu.cores, options.cpu.cores_shared}) {}

    Status Plan();

    const program::Program& program() const override { return differentiated_.program; }
    const std::vector<program::WeightGradient>& trained() const override {
        return differentiated_.gradients;
    }
    std::span<float> Floats(ValueId id) override {
        const program::Value& value = program().value(id);
        return {At(id), static_cast<size_t>(value.shape.Elements(0, 0))};
    }
    std::span<float> weights() override {
        return {reinterpret_cast<float*>(weights_.data()), trained_floats_};
    }
    std::span<float> gradients() override {
        return {reinterpret_cast<float*>(gradients_.data()), trained_floats_};
    }
    void ZeroGradients() override { std::ranges::fill(gradients(), 0.0f); }
    Status Run(const TrainingStep& step, const Groups& groups) override;
    double loss() const override {
        if (loss_ == program::kNoValue) return 0;
        return std::accumulate(losses_.begin(), losses_.begin() + outputs_, 0.0);
    }
    MemoryUse memory() const override {
        return {static_cast<uint64_t>(weights_.size_bytes() + gradients_.size_bytes()), 0,
                static_cast<uint64_t>(arena_.size_bytes() + scratch_.size_bytes())};
    }
    const kernels::dense::DenseKernels& dense() const override { return *context_.dense; }
    void InParts(const Work& work) override {
        work_ = &work;
        team_.Run(
            [](void* self, int part) {
                auto* training = static_cast<CpuTraining*>(self);
                (*training->work_)(part, training->team_.size());
            },
            this);
    }
    int64_t progress() const override { return progress_.load(std::memory_order_relaxed); }

  private:
    using Angles = std::pair<std::vector<float>, float>;
    struct Table {
        Angles angles;
        std::vector<float> data;
    };

    float* At(ValueId id) const { return values_[static_cast<size_t>(id)]; }
    Status PlanWeights();
    void PlanAttention();
    Status PlanActivations();
    void PlanTables();
    Status PlanScratch();
    void BindOperands();
    void BindStep(const TrainingStep& step);
    TrainingOperand Operand(ValueId id) const;
    void BindInts(const char* name, std::span<const int32_t> ints);
    void Walk(int part);

    program::Differentiated differentiated_;
    ValueId loss_;
    TrainingOptions options_;
    const kernels::Kernels& kernels_;
    ThreadTeam team_;
    std::vector<float*> values_;  // by ValueId
    size_t trained_floats_ = 0;
    Memory weights_, gradients_, arena_, inputs_, scratch_;
    std::vector<Table> tables_;
    std::vector<TrainingCall> calls_;  // by op
    int64_t tokens_ = 0, outputs_ = 0;
    const int32_t* positions_ = nullptr;
    std::vector<kernels::Sequence> sequences_;
    std::vector<float> losses_;            // of each output row
    std::vector<std::vector<float>> lse_;  // of each attention
    TrainingContext context_;
    Status status_;
    std::atomic<size_t> failed_at_{SIZE_MAX};  // the op
    std::atomic<int64_t> progress_{0};
    const Work* work_ = nullptr;
};

// Trained weights first, their gradients at the same places.
Status CpuTraining::PlanWeights() {
    const program::Program& p = program();
    values_.assign(p.values.size(), nullptr);
    int64_t floats = 0;
    std::vector<int64_t> at(p.values.size(), -1);
    const auto take = [&](ValueId id) {
        at[static_cast<size_t>(id)] = floats;
        floats += Align(p.value(id).shape.Elements(0, 0));
    };
    std::ranges::sort(differentiated_.gradients, {}, &program::WeightGradient::weight);
    for (const auto& [weight, gradient] : differentiated_.gradients) take(weight);
    trained_floats_ = static_cast<size_t>(floats);
    for (size_t i = 0; i < p.values.size(); ++i) {
        if (p.values[i].storage != program::Storage::kWeight || at[i] >= 0) continue;
        take(static_cast<ValueId>(i));
    }
    WEFT_ASSIGN(weights_, Memory::Allocate(floats * 4, "weights"));
    WEFT_ASSIGN(gradients_,
                Memory::Allocate(static_cast<int64_t>(trained_floats_) * 4, "gradients"));
    for (size_t i = 0; i < at.size(); ++i) {
        if (at[i] >= 0) values_[i] = reinterpret_cast<float*>(weights_.data()) + at[i];
    }
    for (const auto& [weight, gradient] : differentiated_.gradients) {
        values_[static_cast<size_t>(gradient)] =
            reinterpret_cast<float*>(gradients_.data()) + at[static_cast<size_t>(weight)];
    }
    return {};
}

// Each gradient of attention is joined to the attention of the same queries, keys and values.
void CpuTraining::PlanAttention() {
    std::map<std::vector<ValueId>, size_t> attentions;
    for (size_t i = 0; i < calls_.size(); ++i) {
        TrainingCall& call = calls_[i];
        if (const auto* a = std::get_if<program::Attention>(&call.op->attributes)) {
            lse_.emplace_back(static_cast<size_t>(a->heads * options_.max_tokens));
            call.lse = lse_.back().data();
            call.lse_stride = options_.max_tokens;
            attentions[call.op->inputs] = i;
        } else if (call.op->kind() == OpKind::kAttentionGrad) {
            const auto& in = call.op->inputs;
            const TrainingCall& forward = calls_[attentions.at({in[1], in[2], in[3]})];
            call.lse = forward.lse;
            call.lse_stride = forward.lse_stride;
            call.attended_id = forward.op->outputs[0];
        }
    }
}

Status CpuTraining::PlanActivations() {
    const program::Program& p = program();
    // Gradients of attention read what it gave.
    std::vector<ValueId> keep;
    for (const TrainingCall& call : calls_) {
        if (call.attended_id != program::kNoValue) keep.push_back(call.attended_id);
    }
    const program::ArenaPlan plan =
        program::PlanArena(p, options_.max_tokens, options_.max_outputs, keep);
    WEFT_ASSIGN(arena_, Memory::Allocate(plan.size_bytes, "activations"));
    int64_t floats = 0;
    std::vector<int64_t> at(p.values.size(), -1);
    for (size_t i = 0; i < p.values.size(); ++i) {
        if (plan.offsets[i] >= 0) {
            values_[i] = reinterpret_cast<float*>(arena_.data() + plan.offsets[i]);
        } else if (p.values[i].storage == program::Storage::kInput) {
            at[i] = floats;
            floats += Align(p.values[i].shape.Elements(options_.max_tokens, options_.max_outputs));
        }
    }
    WEFT_ASSIGN(inputs_, Memory::Allocate(floats * 4, "inputs"));
    for (size_t i = 0; i < at.size(); ++i) {
        if (at[i] >= 0) values_[i] = reinterpret_cast<float*>(inputs_.data()) + at[i];
    }
    return {};
}

// One table for each distinct set of RoPE frequencies, filled once a step.
void CpuTraining::PlanTables() {
    std::vector<size_t> of_op(program().ops.size(), SIZE_MAX);
    for (size_t i = 0; i < program().ops.size(); ++i) {
        const auto* rope = std::get_if<program::Rope>(&program().ops[i].attributes);
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
        const bool wide = !op.outputs.empty() && p.value(op.outputs[0]).dtype == DType::kF64;
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
    PlanAttention();
    WEFT_TRY(PlanWeights());
    WEFT_TRY(PlanActivations());
    losses_.resize(static_cast<size_t>(options_.max_outputs));
    context_.losses = losses_.data();
    PlanTables();
    context_.kernels = &kernels_;
    context_.dense = &kernels::dense::DenseKernelsFor(options_.cpu.level);
    using kernels::dense::Compute;
    context_.compute = options_.bf16 ? Compute::kBf16 : Compute::kF32;
    return PlanScratch();
}

TrainingOperand CpuTraining::Operand(ValueId id) const {
    const program::Shape& shape = program().value(id).shape;
    int64_t first = shape[0];
    if (first == program::kTokens) first = tokens_;
    if (first == program::kOutputs) first = outputs_;
    if (shape.rank == 1) return {At(id), 1, first};
    return {At(id), first, shape[1]};
}

// For the largest step.
Status CpuTraining::PlanScratch() {
    tokens_ = options_.max_tokens;
    outputs_ = options_.max_outputs;
    sequences_ = {{0, static_cast<int32_t>(tokens_), 0, {}}};
    context_.sequences = sequences_;
    BindOperands();
    for (const TrainingCall& call : calls_) {
        context_.scratch_bytes = std::max(context_.scratch_bytes, ScratchBytes(call, context_));
    }
    context_.scratch_bytes = Align(context_.scratch_bytes / 4 + 1) * 4;
    WEFT_ASSIGN(scratch_, Memory::Allocate(context_.scratch_bytes * team_.size(), "scratch"));
    context_.scratch = {scratch_.data(), static_cast<size_t>(scratch_.size_bytes())};
    return {};
}

void CpuTraining::BindOperands() {
    for (TrainingCall& call : calls_) {
        for (size_t i = 0; i < call.in.size(); ++i) call.in[i] = Operand(call.op->inputs[i]);
        for (size_t i = 0; i < call.out.size(); ++i) call.out[i] = Operand(call.op->outputs[i]);
        if (call.attended_id != program::kNoValue) call.attended = Operand(call.attended_id);
    }
}

void CpuTraining::BindInts(const char* name, std::span<const int32_t> ints) {
    const ValueId id = program().Find(name);
    if (id != program::kNoValue) std::memcpy(At(id), ints.data(), ints.size_bytes());
}

void CpuTraining::BindStep(const TrainingStep& step) {
    tokens_ = static_cast<int64_t>(step.tokens.size());
    outputs_ = static_cast<int64_t>(step.output_rows.size());
    BindInts("tokens", step.tokens);
    BindInts("positions", step.positions);
    BindInts("output_rows", step.output_rows);
    BindInts("targets", step.targets);
    if (differentiated_.output_gradient != program::kNoValue) {
        *At(differentiated_.output_gradient) = step.loss_gradient;
    }
    positions_ = step.positions.data();
    sequences_.clear();
    for (const StepSequence& s : step.sequences) {
        sequences_.push_back({s.row_begin, s.row_count, 0, {}});
    }
    BindOperands();
    context_.sequences = sequences_;
    context_.step = step.number;
    context_.loss_gradient = step.loss_gradient;
}

Status CpuTraining::Run(const TrainingStep& step, const Groups& groups) {
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    const auto outputs = static_cast<int64_t>(step.output_rows.size());
    if (tokens < 1 || tokens > options_.max_tokens || outputs < 1 ||
        outputs > options_.max_outputs) {
        return MakeError(
            ErrorCode::kUsage,
            "a training step of {} rows with {} targets: expected 1 to {}, and 1 to {}", tokens,
            outputs, options_.max_tokens, options_.max_outputs);
    }
    BindStep(step);
    context_.groups = groups;
    status_ = {};
    failed_at_ = SIZE_MAX;
    team_.Run([](void* self, int part) { static_cast<CpuTraining*>(self)->Walk(part); }, this);
    return std::move(status_);
}

void CpuTraining::Walk(int part) {
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
    team_.Barrier();
    for (size_t i = 0; i < calls_.size(); ++i) {
        const TrainingCall& call = calls_[i];
        if (!IsCommunication(call.op->kind())) {
            Compute(call, context_, part, team_.size());
        } else if (part == 0) {
            status_ = Communicate(call, context_);
            if (!status_.ok()) failed_at_ = i;
        }
        if (part == 0) progress_.fetch_add(1, std::memory_order_relaxed);
        team_.Barrier();
        // (Thread 0 may be in the next op by now, and fail in it.)
        if (failed_at_.load(std::memory_order_relaxed) <= i) return;
    }
}

}  // namespace

Result<std::unique_ptr<TrainingExecutable>> TrainingExecutable::Make(
    TrainingProgram program, const TrainingOptions& options) {
    auto training = std::make_unique<CpuTraining>(std::move(program), options);
    WEFT_TRY(training->Plan());
    return std::unique_ptr<TrainingExecutable>(std::move(training));
}

}  // namespace weft::backend
