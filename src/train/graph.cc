#include "train/graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/model.h"
#include "model_files/score_head.h"
#include "program/context_parallel.h"
#include "program/sequence_parallel.h"
#include "train/load_balance.h"

namespace weft::train {
namespace {

using program::ValueId;

// Sets weights to float32, except frozen block types. KV caches keep their types.
void MakeFloat32(program::Program& program, bool frozen) {
    for (program::Value& value : program.values) {
        const bool blocks = Info(value.dtype).quantized && value.shape.rank > 1;
        const bool kept = frozen && blocks && value.storage == program::Storage::kWeight;
        const bool cache = value.storage == program::Storage::kState;
        if (value.dtype != DType::kI32 && !kept && !cache) value.dtype = DType::kF32;
    }
}

// Removes windows and chunks that are at least as long as every sequence: they hide no key.
void OpenWindows(program::Program& program, int64_t sequence) {
    for (program::Op& op : program.ops) {
        auto* attention = op.attributes.If<program::Attention>();
        if (attention == nullptr || sequence == 0) continue;
        if (sequence <= attention->window) attention->window = 0;
        if (sequence <= attention->chunk) attention->chunk = 0;
    }
}

// Replaces the op's output by a value that has no bias yet, and returns both.
std::pair<ValueId, ValueId> WithoutBias(program::Program& program, program::Op& op) {
    const ValueId sum = op.outputs[0];
    program::Value product = program.value(sum);
    product.name += ".product";
    op.outputs[0] = program.AddValue(std::move(product));
    return {op.outputs[0], sum};
}

// The op that adds the bias of a product, which the product loses; nullopt: it has none.
std::optional<program::Op> SplitBias(program::Program& program, program::Op& op) {
    if (op.kind() == program::OpKind::kMatMul && op.inputs.size() == 3) {
        const ValueId bias = op.inputs.back();
        op.inputs.pop_back();
        const auto [product, sum] = WithoutBias(program, op);
        const int64_t shared_rows = op.as<program::MatMul>().shared_rows;
        return program::Op{program::AddBias{shared_rows}, {product, bias}, {sum}};
    }
    if (op.kind() == program::OpKind::kExpertMatMul && op.inputs.size() == 4) {
        const ValueId ids = op.inputs[1], bias = op.inputs.back();
        op.inputs.pop_back();
        const auto [product, sum] = WithoutBias(program, op);
        const int64_t first = op.as<program::ExpertMatMul>().first_expert;
        return program::Op{program::ExpertBias{first}, {product, ids, bias}, {sum}};
    }
    auto* experts = op.attributes.If<program::ExpertSum>();
    if (experts == nullptr || !experts->bias) return std::nullopt;
    const ValueId ids = op.inputs[1], weights = op.inputs[2], bias = op.inputs[4];
    experts->bias = false;
    op.inputs.erase(op.inputs.begin() + 4);
    const auto [product, sum] = WithoutBias(program, op);
    const program::ExpertBiasSum add{experts->first_expert};
    return program::Op{add, {product, ids, weights, bias}, {sum}};
}

// Splits a product with a bias into two ops, because many threads write a product at once.
void SplitBiases(program::Program& program) {
    std::vector<program::Op> ops;
    for (program::Op& op : program.ops) {
        std::optional<program::Op> bias = SplitBias(program, op);
        ops.push_back(std::move(op));
        if (bias) ops.push_back(std::move(*bias));
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

// Whether the op adds the bias of the output projection.
bool AddsToProduct(const program::Program& program, const program::Op& op) {
    return op.kind() == program::OpKind::kAddBias &&
           WriterOf(program, op.inputs[0])->kind() == program::OpKind::kMatMul;
}

// Replaces the ops between the last norm and the logits by the loss of these logits, divided by the
// temperature.
Result<ValueId> AddLoss(program::Program& program, double temperature, const LossTerms& terms) {
    const ValueId logits = program.Find("logits");
    const ValueId targets = program.AddValue(
        {"targets", DType::kI32, {program::kOutputs}, program::Storage::kInput, {}});
    program::LinearCrossEntropy loss;
    loss.terms = terms;
    ValueId at = logits;
    std::vector<ValueId> between, bias;
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
        } else if (AddsToProduct(program, *writer)) {
            loss.biased = true;
            bias = {writer->inputs[1]};
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
    // (cap * tanh(x / cap) / t is cap / t * tanh(x / t / (cap / t)).)
    loss.scale /= static_cast<float>(temperature);
    loss.soft_cap /= static_cast<float>(temperature);
    const ValueId x = writer->inputs[0], weight = writer->inputs[1];
    std::erase_if(program.ops, [&](const program::Op& op) {
        return !op.outputs.empty() && std::ranges::find(between, op.outputs[0]) != between.end();
    });
    std::vector<ValueId> inputs = {x, weight, targets};
    inputs.insert(inputs.end(), bias.begin(), bias.end());
    return program.Emit(std::move(loss), std::move(inputs), "loss", {program::kOutputs});
}

// Noise for the embedding of the tokens, if this shard has it.
void AddNoise(program::Program& program) {
    for (program::Op& op : program.ops) {
        if (op.kind() != program::OpKind::kEmbedding) continue;
        if (program.value(op.inputs[0]).name != "tokens") continue;
        const auto add = [&](const char* name, DType dtype) {
            op.inputs.push_back(
                program.AddValue({name, dtype, {program::kTokens}, program::Storage::kInput, {}}));
        };
        add("noise_keys", DType::kI32);
        add("noise_amplitudes", DType::kF32);
        return;
    }
}

// ---- Types --------------------------------------------------------------------------------------

// By id: whether the value keeps all bits.
using Wide = std::vector<bool>;

// Kernels of these ops have one type for all matrices: if one keeps all bits, all do.
bool HasOneType(program::OpKind kind) {
    using program::OpKind;
    return kind == OpKind::kAttention || kind == OpKind::kAttentionGrad || kind == OpKind::kGlu ||
           kind == OpKind::kGluGrad || kind == OpKind::kRope || kind == OpKind::kAllToAll;
}

// Widens the operands of such ops, until none has two types.
void WidenTogether(const program::Program& program, Wide& wide) {
    for (bool changed = true; changed;) {
        changed = false;
        for (const program::Op& op : program.ops) {
            if (!HasOneType(op.kind())) continue;
            const program::Operands operands = program::OperandsOf(op).value();
            std::vector<ValueId> matrices;
            const auto add = [&](const auto& ids, const auto& rows) {
                for (size_t i = 0; i < ids.size(); ++i) {
                    const bool matrix = program.value(ids[i]).shape.rank > 1;
                    if (matrix && !rows[i]->exact && !rows[i]->index) matrices.push_back(ids[i]);
                }
            };
            add(op.inputs, operands.inputs);
            add(op.outputs, operands.outputs);
            const auto is_wide = [&](ValueId id) { return wide[static_cast<size_t>(id)]; };
            const auto count = std::ranges::count_if(matrices, is_wide);
            if (count == 0 || count == std::ssize(matrices)) continue;
            for (const ValueId id : matrices) wide[static_cast<size_t>(id)] = true;
            changed = true;
        }
    }
}

// Matrices and stacks of weights that an op reads as float32, such as taps of convolutions, and
// their gradients. (Tables of the residual stream are narrow.)
std::set<ValueId> ExactWeights(const program::Differentiated& differentiated) {
    std::set<ValueId> exact;
    for (const program::Op& op : differentiated.program.ops) {
        if (op.Is(program::Trait::kStream)) continue;
        const program::Operands operands = program::OperandsOf(op).value();
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const program::Value& value = differentiated.program.value(op.inputs[i]);
            const bool weight = value.storage == program::Storage::kWeight;
            if (weight && operands.inputs[i]->exact) exact.insert(op.inputs[i]);
        }
    }
    for (const auto& [weight, gradient] : differentiated.gradients) {
        if (exact.contains(weight)) exact.insert(gradient);
    }
    return exact;
}

// Gradients of output matrices that the loss adds to piece by piece (program/loss.h). A narrow type
// would round the sum at each piece.
std::set<ValueId> GradientsInPieces(const program::Differentiated& differentiated,
                                    const GraphOptions& options) {
    std::set<ValueId> outputs;
    for (const program::Op& op : differentiated.program.ops) {
        if (op.kind() == program::OpKind::kLinearCrossEntropyGrad) outputs.insert(op.inputs[2]);
    }
    const int64_t rows = std::max<int64_t>(options.rows, 1);
    std::set<ValueId> gradients;
    for (const auto& [weight, gradient] : differentiated.gradients) {
        const program::Value& value = differentiated.program.value(weight);
        // (A tensor of two stages has one type on both.)
        const bool output = outputs.contains(weight) ||
                            std::ranges::count(options.zero.alone, value.slice.name) > 0;
        if (!output) continue;
        const program::LossOptions loss{rows, options.target.logits_bytes};
        if (program::LossPieceRows(value, loss) < rows) gradients.insert(gradient);
    }
    return gradients;
}

// The residual stream, values summed over ranks or sent, choices of experts and losses stay float32
// (:exact, program/ops.h). The base value of an adapter is as narrow as without it, and so is the
// adapter's addend, unless their sum goes directly into the residual stream. Adapters and their
// gradients stay float32.
void NarrowTypes(program::Differentiated& differentiated, const Adapters& adapters,
                 const GraphOptions& options, ValueId output) {
    program::Program& program = differentiated.program;
    Wide wide(program.values.size(), false);
    const auto widen = [&](ValueId id) { wide[static_cast<size_t>(id)] = true; };
    if (output != program::kNoValue) widen(output);
    std::vector<bool> adapter(program.values.size(), false);
    for (const ValueId weight : adapters.weights) adapter[static_cast<size_t>(weight)] = true;
    for (const auto& [weight, gradient] : differentiated.gradients) {
        if (adapter[static_cast<size_t>(weight)]) adapter[static_cast<size_t>(gradient)] = true;
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
    WidenTogether(program, wide);
    std::set<ValueId> exact = ExactWeights(differentiated);
    exact.merge(GradientsInPieces(differentiated, options));
    for (size_t i = 0; i < program.values.size(); ++i) {
        program::Value& value = program.values[i];
        const bool matrix = value.shape.rank > 1 && !exact.contains(static_cast<ValueId>(i));
        const bool gradient =
            value.storage == program::Storage::kGradient && options.gradients != DType::kF32;
        const bool state = (value.storage == program::Storage::kWeight || gradient) && !adapter[i];
        const bool activation = value.storage == program::Storage::kActivation && !wide[i];
        if (value.dtype == DType::kF32 && matrix && (state || activation)) {
            value.dtype = options.dtype;
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

struct Forward {
    program::Program program;
    Adapters adapters;
    ValueId loss = program::kNoValue;
};

// A score head is trained whole beside adapters, as PEFT does.
void AddHead(const program::Program& program, Adapters& adapters) {
    for (size_t i = 0; i < program.values.size(); ++i) {
        const program::Value& value = program.values[i];
        const bool weight = value.storage == program::Storage::kWeight;
        if (weight && model_files::IsOfScoreHead(value.slice.name)) {
            adapters.weights.push_back(static_cast<ValueId>(i));
        }
    }
}

// cache: with a KV cache; adapts: with adapters, if there are any; frozen: weights are not trained.
struct ForwardKind {
    bool cache = false, adapts = true, frozen = false;
};

// The forward pass of a shard up to the loss, if the shard has it.
Result<Forward> BuildForward(const model::Hyper& hyper, const model::Shard& shard,
                             const model_files::ModelSource& source, const GraphOptions& options,
                             const ForwardKind& kind) {
    model::BuildOptions build;
    build.kv_dtype = options.kv_dtype;
    build.cache = kind.cache;
    build.keeps_logits = true;
    build.context = options.sequence;
    if (options.vectors) build.outputs = model::Outputs::kVectors;
    build.target = options.target;
    build.target.float64_reductions = false;
    Forward forward;
    WEFT_ASSIGN(forward.program, model::BuildProgram(hyper, shard, source, build));
    OpenWindows(forward.program, options.sequence);
    MakeFloat32(forward.program, options.lora != nullptr || kind.frozen);
    SplitBiases(forward.program);
    if (options.lora != nullptr && kind.adapts) {
        WEFT_TRY(CheckStages(*options.lora, {&shard, 1}, source.name()));
        WEFT_ASSIGN(forward.adapters, AddAdapters(forward.program, *options.lora));
        WEFT_CHECK(!forward.adapters.weights.empty());
        AddHead(forward.program, forward.adapters);
    }
    if (options.noise && kind.adapts && !kind.cache) AddNoise(forward.program);
    if (shard.last_stage() && options.vectors) {
        forward.loss = forward.program.Find("vectors");
    } else if (shard.last_stage()) {
        WEFT_ASSIGN(forward.loss, AddLoss(forward.program, options.temperature, options.loss));
    }
    return forward;
}

Status AddChunk(TrainingGraph& graph, const model::Hyper& hyper, const model::Shard& shard,
                const model_files::ModelSource& source, const GraphOptions& options) {
    WEFT_ASSIGN(Forward built, BuildForward(hyper, shard, source, options, {}));
    program::Program& forward = built.program;
    const Adapters& adapters = built.adapters;
    program::DifferentiateOptions differentiate;
    differentiate.output = built.loss;
    if (options.load_balance) {
        WEFT_ASSIGN(differentiate.side_output, AddLoadBalance(forward, hyper, shard, source));
    }
    if (options.row_shares) {
        forward = program::ApplySequenceParallel(std::move(forward), shard.layout.tp);
    }
    WEFT_ASSIGN(forward, program::ApplyContextParallel(std::move(forward), options.context_rank,
                                                       options.context_ranks));
    differentiate.weights = adapters.weights;
    WEFT_ASSIGN(program::Differentiated differentiated,
                program::Differentiate(forward, differentiate));
    if (options.dtype != DType::kF32) {
        NarrowTypes(differentiated, adapters, options, built.loss);
    }
    differentiated =
        program::WithRecompute(std::move(differentiated), options.recompute, adapters.sums);
    program::ZeroProgram zero = program::ApplyZero(std::move(differentiated), options.zero);
    program::ExpandedLoss expanded;
    if (options.vectors) {
        const size_t turn = zero.differentiated.backward_begin;
        expanded = {std::move(zero.differentiated), turn, turn, {}};
        expanded.values.evaluated = built.loss;
    } else if (options.rows > 0) {
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

// The op that writes a value of a chunk, which is a gathered unit of ZeRO.
program::Op GatherOf(const program::ChunkedProgram& all, size_t chunk, ValueId unit) {
    const program::ModelChunk& range = all.chunks[chunk];
    const auto ops = std::span(all.program.ops).subspan(range.begin, range.end - range.begin);
    const auto op = std::ranges::find_if(
        ops, [&](const program::Op& each) { return std::ranges::count(each.outputs, unit) > 0; });
    WEFT_CHECK(op != ops.end() && op->kind() == program::OpKind::kZeroAllGather);
    return *op;
}

// Makes the weights of values [first, end), those of the last chunk, views of the weights with the
// same names in `chunk`. Weights that are shares (ZeRO 3) are views of whole units, which the last
// chunk's backward ops gather. adapters: false leaves adapters unchanged.
void ShareWeights(program::ChunkedProgram& all, size_t chunk, ValueId first, bool adapters) {
    program::Program& program = all.program;
    std::unordered_map<std::string, ValueId> trained_weights;  // by name
    for (ValueId id = all.chunks[chunk].first_value; id < all.chunks[chunk].end_value; ++id) {
        trained_weights.emplace(program.value(id).name, id);
    }
    std::map<ValueId, ValueId> whole;  // by unit that the chunk gathers for a while
    const size_t count = program.values.size();
    for (auto id = static_cast<size_t>(first); id < count; ++id) {
        if (program.values[id].storage != program::Storage::kWeight) continue;
        if (!adapters && program.values[id].slice.name.starts_with(kAdapterPrefix)) continue;
        const auto found = trained_weights.find(program.values[id].name);
        WEFT_CHECK(found != trained_weights.end());
        const ValueId trained = found->second;
        const program::Value home = program.value(trained);
        const bool view = home.storage == program::Storage::kView;
        ValueId base = view ? home.base : trained;
        if (program.value(base).storage == program::Storage::kActivation) {
            if (!whole.contains(base)) {
                program::Value unit = program.value(base);
                unit.name = fmt::format("{}.whole", unit.name);
                unit.storage = program::Storage::kWeight;
                program::Op gather = GatherOf(all, chunk, base);
                gather.outputs = {whole[base] = program.AddValue(std::move(unit))};
                program.ops.push_back(std::move(gather));
            }
            base = whole.at(base);
        }
        program::Value& weight = program.values[id];
        weight.storage = program::Storage::kView;
        weight.dtype = home.dtype;
        weight.base = base;
        weight.base_begin = view ? home.base_begin : 0;
    }
    all.chunks.back().end = program.ops.size();
    all.chunks.back().end_value = static_cast<ValueId>(program.values.size());
}

Status AddGenerator(TrainingGraph& graph, size_t chunk, const model::Hyper& hyper,
                    const model::Shard& shard, const model_files::ModelSource& source,
                    const GraphOptions& options) {
    WEFT_ASSIGN(Forward forward, BuildForward(hyper, shard, source, options, {.cache = true}));
    if (program::SlotBytes(forward.program) > 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} has recurrent layers: Weft trains it, but does not generate "
                         "completions with it during training (--loss grpo)",
                         source.name());
    }
    program::Differentiated ends;
    ends.backward_begin = forward.program.ops.size();
    ends.program = std::move(forward.program);
    program::ExpandedLoss expanded = program::ExpandLoss(
        std::move(ends),
        {options.rows, options.target.logits_bytes, options.generated_rows, false});
    const ValueId first =
        program::AppendChunk(graph.program, std::move(expanded), program::kNoValue);
    ShareWeights(graph.program, chunk, first, true);
    return {};
}

// A chunk without a backward pass. Returns its first value.
Result<ValueId> AddForward(program::ChunkedProgram& all, const model::Hyper& hyper,
                           const model::Shard& shard, const model_files::ModelSource& source,
                           const GraphOptions& options, const ForwardKind& kind) {
    WEFT_ASSIGN(Forward forward, BuildForward(hyper, shard, source, options, kind));
    program::Differentiated ends;
    const size_t end = ends.backward_begin = forward.program.ops.size();
    ends.program = std::move(forward.program);
    if (options.dtype != DType::kF32) {
        NarrowTypes(ends, forward.adapters, options,
                    options.vectors ? forward.loss : program::kNoValue);
    }
    program::ExpandedLoss expanded;
    if (options.vectors) {
        expanded = {std::move(ends), end, end, {}};
        expanded.values.evaluated = forward.loss;
    } else {
        expanded =
            program::ExpandLoss(std::move(ends), {options.rows, options.target.logits_bytes});
    }
    return program::AppendChunk(all, std::move(expanded), program::kNoValue);
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
    for (size_t i = 0; i < shards.size() && options.generated_rows > 0; ++i) {
        WEFT_TRY(AddGenerator(graph, i, hyper, shards[i], source, options));
    }
    // (The adapter of --lora-from belongs to the model before training.)
    const bool adapts = options.lora != nullptr && !options.lora->words.from.empty();
    for (size_t i = 0; i < shards.size() && options.reference; ++i) {
        WEFT_ASSIGN(const ValueId first, AddForward(graph.program, hyper, shards[i], source,
                                                    options, {.adapts = adapts}));
        if (options.lora != nullptr) ShareWeights(graph.program, i, first, false);
    }
    return graph;
}

Result<program::ChunkedProgram> BuildScoringGraph(const model::Hyper& hyper,
                                                  std::span<const model::Shard> shards,
                                                  const model_files::ModelSource& source,
                                                  const GraphOptions& options) {
    program::ChunkedProgram program;
    for (const model::Shard& shard : shards) {
        WEFT_TRY(
            AddForward(program, hyper, shard, source, options, {.adapts = false, .frozen = true}));
    }
    return program;
}

}  // namespace weft::train
