#include "train/graph.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/model.h"
#include "program/sequence_parallel.h"
#include "train/load_balance.h"

namespace weft::train {
namespace {

using program::ValueId;

// Sets weights to float32, except frozen block types.
void MakeFloat32(program::Program& program, bool frozen) {
    for (program::Value& value : program.values) {
        const bool blocks = Info(value.dtype).quantized && value.shape.rank > 1;
        const bool kept = frozen && blocks && value.storage == program::Storage::kWeight;
        if (value.dtype != DType::kI32 && !kept) value.dtype = DType::kF32;
    }
}

// Removes windows that are at least as long as every sequence: they hide no key.
void OpenWindows(program::Program& program, int64_t sequence) {
    for (program::Op& op : program.ops) {
        auto* attention = op.attributes.If<program::Attention>();
        if (attention != nullptr && sequence <= attention->window) attention->window = 0;
    }
}

// Splits a mat_mul with a bias into two ops, because many threads write a product at once.
void SplitBiases(program::Program& program) {
    std::vector<program::Op> ops;
    for (program::Op& op : program.ops) {
        const bool has_bias = op.kind() == program::OpKind::kMatMul && op.inputs.size() == 3;
        if (!has_bias) {
            ops.push_back(std::move(op));
            continue;
        }
        const ValueId bias = op.inputs.back(), sum = op.outputs[0];
        const int64_t shared_rows = op.as<program::MatMul>().shared_rows;
        program::Value product = program.value(sum);
        product.name += ".product";
        op.inputs.pop_back();
        op.outputs[0] = program.AddValue(std::move(product));
        const ValueId inner = op.outputs[0];
        ops.push_back(std::move(op));
        ops.push_back({program::AddBias{shared_rows}, {inner, bias}, {sum}});
    }
    program.ops = std::move(ops);
}

// The op that writes a value; null for inputs.
const program::Op* WriterOf(const program::Program& program, ValueId id) {
    for (const program::Op& op : program.ops) {
        if (std::ranges::find(op.outputs, id) != op.outputs.end()) return &op;
    }
    return nullptr;
}

// Replaces the ops between the last norm and the logits by the loss of these logits.
Result<ValueId> AddLoss(program::Program& program, ValueId logits) {
    const ValueId targets = program.AddValue(
        {"targets", DType::kI32, {program::kOutputs}, program::Storage::kInput, {}});
    program::LinearCrossEntropy loss;
    ValueId at = logits;
    std::vector<ValueId> between;
    const program::Op* writer = WriterOf(program, at);
    for (; writer->kind() != program::OpKind::kMatMul; writer = WriterOf(program, at)) {
        if (const auto* gather = writer->attributes.If<program::AllGather>()) {
            loss.cut = program::Cut::kRows;
            loss.parts = gather->parts;
            loss.first_row = gather->begin;
        } else if (const auto* scale = writer->attributes.If<program::Scale>()) {
            loss.scale = scale->factor;
        } else if (const auto* cap = writer->attributes.If<program::SoftCap>()) {
            loss.soft_cap = cap->cap;
        } else {
            return MakeError(
                ErrorCode::kUnsupported,
                "no loss is known for logits from {}: this model can be run, but not trained",
                program::OpName(writer->kind()));
        }
        between.push_back(at);
        at = writer->inputs[0];
    }
    between.push_back(at);
    const ValueId x = writer->inputs[0], weight = writer->inputs[1];
    std::erase_if(program.ops, [&](const program::Op& op) {
        return !op.outputs.empty() && std::ranges::find(between, op.outputs[0]) != between.end();
    });
    return program.Emit(std::move(loss), {x, weight, targets}, "loss", {program::kOutputs});
}

// ---- Types --------------------------------------------------------------------------------------

// The residual stream, values summed over ranks or sent, choices of experts and losses stay float32
// (:exact, program/ops.h). The base value of an adapter is as narrow as without it, and so is the
// adapter's addend, unless their sum goes directly into the residual stream. Adapters and their
// gradients stay float32.
void NarrowTypes(program::Differentiated& differentiated, const Adapters& adapters, DType dtype,
                 DType gradients) {
    program::Program& program = differentiated.program;
    std::vector<bool> wide(program.values.size(), false);
    const auto widen = [&](ValueId id) { wide[static_cast<size_t>(id)] = true; };
    std::vector<bool> adapter(program.values.size(), false);
    if (!adapters.weights.empty()) {
        for (const auto& [weight, gradient] : differentiated.gradients) {
            adapter[static_cast<size_t>(weight)] = adapter[static_cast<size_t>(gradient)] = true;
        }
    }
    // (A gradient that passes through both a weight and its adapter is as narrow as its value.)
    std::set<ValueId> branches(adapters.sums.begin(), adapters.sums.end());
    for (const program::Op& op : program.ops) {
        const program::Operands operands = program::OperandsOf(op).value();
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            if (operands.inputs[i]->narrow) branches.insert(op.inputs[i]);
        }
    }
    const auto is_branch = [&](const program::Op& op) {
        return op.kind() == program::OpKind::kAdd && branches.contains(op.outputs[0]);
    };
    for (const program::Op& op : program.ops) {
        if (is_branch(op)) continue;
        const program::Operands operands = program::OperandsOf(op).value();
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            if (operands.inputs[i]->exact) widen(op.inputs[i]);
        }
        for (size_t i = 0; i < op.outputs.size(); ++i) {
            if (operands.outputs[i]->exact) widen(op.outputs[i]);
        }
    }
    for (const program::Op& op : program.ops) {
        if (!is_branch(op) || !wide[static_cast<size_t>(op.outputs[0])]) continue;
        for (const ValueId id : op.inputs) widen(id);
    }
    for (const program::Op& op : program.ops) {  // (gathered float32 values are float32 before)
        const bool gathers = op.Is(program::Trait::kAllGather);
        if (gathers && wide[static_cast<size_t>(op.outputs[0])]) widen(op.inputs[0]);
    }
    for (size_t i = 0; i < program.values.size(); ++i) {
        program::Value& value = program.values[i];
        const bool matrix = value.shape.rank > 1;
        const bool gradient =
            value.storage == program::Storage::kGradient && gradients != DType::kF32;
        const bool state = (value.storage == program::Storage::kWeight || gradient) && !adapter[i];
        const bool activation = value.storage == program::Storage::kActivation && !wide[i];
        if (value.dtype == DType::kF32 && matrix && (state || activation)) {
            value.dtype = dtype;
        }
    }
}

void Move(program::FlatBucket& unit, ValueId shift) {
    const auto move = [shift](ValueId& id) {
        if (id != program::kNoValue) id += shift;
    };
    move(unit.weights);
    move(unit.gradients);
    for (program::FlatBucket::Member& member : unit.members) move(member.view);
}

Status AddChunk(TrainingGraph& graph, const model::Hyper& hyper, const model::Shard& shard,
                const model_files::ModelSource& source, const GraphOptions& options) {
    model::BuildOptions build;
    build.kv_dtype = DType::kF32;
    build.cache = false;
    build.context = options.sequence;
    build.target = options.target;
    WEFT_ASSIGN(program::Program forward, model::BuildProgram(hyper, shard, source, build));
    OpenWindows(forward, options.sequence);
    MakeFloat32(forward, options.lora != nullptr);
    SplitBiases(forward);
    Adapters adapters;
    if (options.lora != nullptr) {
        WEFT_TRY(CheckStages(*options.lora, {&shard, 1}, source.name()));
        WEFT_ASSIGN(adapters, AddAdapters(forward, *options.lora));
        WEFT_CHECK(!adapters.weights.empty());
    }
    const ValueId logits = forward.Find("logits");
    program::DifferentiateOptions differentiate;
    if (shard.last_stage()) {
        WEFT_ASSIGN(differentiate.output, AddLoss(forward, logits));
    }
    if (options.load_balance) {
        WEFT_ASSIGN(differentiate.side_output, AddLoadBalance(forward, hyper, shard, source));
    }
    if (options.row_shares) {
        forward = program::ApplySequenceParallel(std::move(forward), shard.layout.tp);
    }
    differentiate.weights = adapters.weights;
    WEFT_ASSIGN(program::Differentiated differentiated,
                program::Differentiate(forward, differentiate));
    if (options.dtype != DType::kF32) {
        NarrowTypes(differentiated, adapters, options.dtype, options.gradients);
    }
    differentiated =
        program::WithRecompute(std::move(differentiated), options.recompute, adapters.sums);
    program::ZeroProgram zero = program::ApplyZero(std::move(differentiated), options.zero);
    program::ExpandedLoss expanded;
    if (options.rows > 0) {
        expanded = program::ExpandLoss(std::move(zero.differentiated),
                                       {options.rows, options.target.logits_bytes});
    } else {
        const size_t turn = zero.differentiated.backward_begin;
        expanded = {std::move(zero.differentiated), turn, turn, {}};
    }
    const ValueId shift =
        program::AppendChunk(graph.program, std::move(expanded), differentiate.side_output);
    for (program::FlatBucket& unit : zero.units) {
        Move(unit, shift);
        graph.units.push_back(std::move(unit));
    }
    return {};
}

}  // namespace

Result<TrainingGraph> BuildTrainingGraph(const model::Hyper& hyper,
                                         std::span<const model::Shard> shards,
                                         const model_files::ModelSource& source,
                                         const GraphOptions& options) {
    TrainingGraph graph;
    for (const model::Shard& shard : shards) {
        WEFT_TRY(AddChunk(graph, hyper, shard, source, options));
    }
    return graph;
}

}  // namespace weft::train
