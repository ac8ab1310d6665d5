// Programs that together have every op, and the check that a device lowers every op.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/executable.h"
#include "support/training_case.h"

namespace weft::support {

// ---- Inference ----------------------------------------------------------------------------------

// A Program with each op of inference in at least one form.
class EveryOp {
  public:
    explicit EveryOp(DType weights) : weights_(weights) {
        tokens_ = Input("tokens", kTokens);
        positions_ = Input("positions", kTokens);
        x_ = Emit(program::Embedding{}, {tokens_, Weight({64, kCols})}, {kTokens, kCols});
        Norms();
        Attentions();
        Recurrent();
        Streams();
        Products();
        Experts();
        Ends();
    }
    program::Program program;

  private:
    static constexpr int64_t kCols = 32, kTokens = program::kTokens, kOutputs = program::kOutputs;
    using Shape = program::Shape;
    using Storage = program::Storage;
    using ValueId = program::ValueId;
    using OpAttributes = program::OpAttributes;

    std::string Name() { return "v" + std::to_string(program.values.size()); }
    ValueId Input(const char* name, int64_t dim) {
        return program.AddValue({name, DType::kI32, {dim}, Storage::kInput});
    }
    ValueId Weight(Shape shape, DType dtype) {
        return program.AddValue({Name(), dtype, shape, Storage::kWeight});
    }
    ValueId Weight(Shape shape) { return Weight(shape, weights_); }
    ValueId Vector(int64_t count) { return Weight({count}, DType::kF32); }
    ValueId Cache(int64_t heads, int64_t cols, int64_t row_positions = 1) {
        program::Value cache{Name(), DType::kF16, {heads, cols}, Storage::kState};
        cache.row_positions = row_positions;
        return program.AddValue(std::move(cache));
    }
    ValueId Activation(Shape shape, DType dtype = DType::kF32) {
        return program.AddValue({Name(), dtype, shape});
    }
    ValueId Emit(OpAttributes op, std::vector<ValueId> inputs, Shape shape,
                 DType dtype = DType::kF32) {
        const ValueId y = Activation(shape, dtype);
        program.ops.push_back({std::move(op), std::move(inputs), {y}});
        return y;
    }
    ValueId Product(ValueId x, int64_t rows = kCols) {
        return Emit(program::MatMul{}, {x, Weight({rows, kCols})}, {kTokens, rows});
    }
    void Adapt(ValueId x, ValueId y, int64_t segment) {
        const ValueId a = Weight({8, kCols}, DType::kF32), b = Weight({kCols, 8}, DType::kF32);
        const ValueId whole = Weight({kCols, kCols}, DType::kF32);
        const ValueId gain = Weight({kCols, 1}, DType::kF32);
        program.ops.push_back({program::Adapt{{1, 3, 4}, {3, 1, 12}, segment},
                               {x, a, b, whole, gain, Weight({kCols, 1}, DType::kF32), y},
                               {y}});
    }
    std::vector<ValueId> ExpertPair() {
        return {Weight({4, 8, kCols}, DType::kF32), Weight({4, kCols, 8}, DType::kF32)};
    }
    void AdaptSlots(ValueId x, ValueId ids, ValueId y) {
        const std::vector<ValueId> pair = ExpertPair();
        program.ops.push_back(
            {program::AdaptExperts{{{2}, 0, 0}}, {x, ids, pair[0], pair[1], y}, {y}});
    }
    void AdaptSum(ValueId x, ValueId ids, ValueId weights, ValueId y) {
        const std::vector<ValueId> pair = ExpertPair();
        program.ops.push_back(
            {program::AdaptExpertSum{{{2}, 0, 32}}, {x, ids, weights, pair[0], pair[1], y}, {y}});
    }

    void Norms() {
        const Shape rows{kTokens, kCols}, column{kTokens, 1};
        const ValueId squares = Emit(program::SumSquares{{{0, 16}}}, {x_}, column);
        const ValueId wide = Emit(program::SumSquares{{{16, 16}}}, {x_}, column, DType::kF64);
        Emit(program::AllReduce{}, {wide}, column);
        program::RmsNorm part{1e-5f, kCols, 2 * kCols, 0, false}, plain{1e-5f, kCols};
        plain.plain = plain.centered = true;
        Emit(part, {x_, Vector(kCols), squares}, rows);
        Emit(plain, {x_}, rows);
        norm_ = Emit(program::RmsNorm{1e-5f, kCols}, {x_, Vector(kCols)}, rows);
    }

    void Attentions() {
        const Shape rows{kTokens, kCols};
        const ValueId k = Product(norm_), v = Product(norm_);
        const ValueId q =
            Emit(program::MatMul{}, {norm_, Weight({kCols, kCols}), Vector(kCols)}, rows);
        Adapt(norm_, q, 0);
        program::Rope rope;
        rope.head_dim = rope.rotary_dim = 16;
        rope.inverse_frequency.assign(8, 1);
        const ValueId turned = Emit(rope, {q, positions_}, rows);
        program::Attention attention;
        attention.heads = attention.kv_heads = 2;
        attention.head_dim = 16;
        Emit(attention, {turned, k, v, Cache(2, 16), Cache(2, 16)}, rows);
        attention.sinks = true;
        attended_ = Emit(attention, {turned, k, v, Vector(2), Cache(2, 16), Cache(2, 16)}, rows);
        const ValueId keys = Product(norm_, 16), latent = Product(norm_, 16);
        const ValueId key = Product(norm_, 8);
        Emit(program::LatentAttention{2}, {attended_, keys, latent, key, Cache(1, 24)}, rows);
        const ValueId chosen =
            Emit(program::IndexTopK{}, {attended_, latent, Product(norm_, 2), Cache(1, 16)},
                 {kTokens, 3}, DType::kI32);
        Emit(program::LatentAttention{2}, {attended_, keys, latent, key, chosen, Cache(1, 24)},
             rows);
        const program::LatentAttention sunk{2, 1, true};
        Emit(sunk, {attended_, keys, latent, key, Vector(2), Cache(1, 24)}, rows);
        Emit(sunk, {attended_, keys, latent, key, Vector(2), chosen, Cache(1, 24)}, rows);
        const program::LatentAttention keyless{.heads = 2, .keyed = false};
        const ValueId positions = Emit(program::IndexTopK{4, true},
                                       {attended_, latent, Product(norm_, 2), Cache(1, 16, 4)},
                                       {kTokens, 11}, DType::kI32);
        Emit(keyless, {attended_, latent, positions, Cache(1, 16)}, rows);
        const ValueId blocks = Emit(program::IndexBlocks{2, 8, 1}, {latent, key, Cache(1, 8)},
                                    {kTokens, 6}, DType::kI32);
        Emit(program::ScaleHeads{}, {q, positions_, Vector(2), Vector(2)}, rows);
        attention.sinks = false;
        attention.block = 8;
        Emit(attention, {turned, k, v, blocks, Cache(2, 16), Cache(2, 16)}, rows);
        program::WindowAttention windows{2, 3};
        Emit(windows, {attended_, latent, Vector(2), Cache(1, 16)}, rows);
        const ValueId windowed =
            Emit(program::IndexTopK{4}, {attended_, latent, Product(norm_, 2), Cache(1, 16, 4)},
                 {kTokens, 3}, DType::kI32);
        windows.stride = 128;
        Emit(windows, {attended_, latent, Vector(2), latent, Cache(1, 16), Cache(1, 16, 64)}, rows);
        windows.stride = 4;
        windows.chooses = true;
        Emit(windows,
             {attended_, latent, Vector(2), latent, windowed, Cache(1, 16), Cache(1, 16, 4)}, rows);
    }

    void Recurrent() {
        const Shape rows{kTokens, kCols};
        const auto slots = [&](Shape shape) {
            return program.AddValue({Name(), DType::kF32, shape, Storage::kSlots});
        };
        const auto weight = [&] { return Weight({kCols, 1, 3}, DType::kF32); };
        const ValueId x = Emit(program::CausalConv{}, {norm_, weight(), slots({2, kCols})}, rows);
        const ValueId y =
            Emit(program::CausalConv{true}, {x, weight(), Vector(kCols), slots({2, kCols})}, rows);
        Emit(program::CausalConv{false, true}, {x, weight(), norm_, y, slots({2, kCols})}, rows);
        program::DeltaRule rule{.key_heads = 2};
        const ValueId decay = Product(y, 2), beta = Product(y, 2);
        Emit(rule, {x, y, y, decay, beta, Vector(2), Vector(2), slots({2, 16, 16})}, rows);
        rule.by_channel = true;
        Emit(rule, {x, y, y, x, beta, Vector(2), Vector(kCols), slots({2, 16, 16})}, rows);
        program::DeltaRule ssd{.key_heads = 2, .ssd = true};
        Emit(ssd, {x, y, y, decay, Vector(2), Vector(2), Vector(2), slots({2, 16, 16})}, rows);
        ssd.by_channel = true;
        const ValueId rates = Weight({2, 16}, DType::kF32);
        Emit(ssd, {x, y, y, decay, rates, Vector(2), Vector(2), slots({2, 16, 16})}, rows);
    }

    void Streams() {
        const program::StreamWeights weigh{.streams = 2, .iterations = 3};
        const ValueId logits = Product(norm_, 8), weights = Activation({kTokens, 8});
        program.ops.push_back({weigh, {logits, Vector(8), Vector(3)}, {weights}});
        const program::StreamWeights independent{.streams = 2, .magnitude = 3};
        const ValueId few = Product(norm_, 4), own = Activation({kTokens, 4});
        program.ops.push_back({independent, {few, Vector(4), Vector(2)}, {own}});
        const ValueId merged =
            Emit(program::MergeStreams{2}, {norm_, weights}, {kTokens, kCols / 2});
        Emit(program::MixStreams{2}, {norm_, weights, merged}, {kTokens, kCols});
        Emit(program::MixStreams{2}, {norm_, own, merged}, {kTokens, kCols});
        Emit(program::MixStreams{2}, {merged}, {kTokens, kCols});
        const ValueId coefs = Product(norm_, 4);
        Emit(program::AltUpWeights{2}, {coefs}, {kTokens, 8});
        Emit(program::AltUpWeights{2, true}, {Product(norm_, 2)}, {kTokens, 8});
        Emit(program::MatchStreams{}, {norm_, merged}, {kTokens, kCols});
        Emit(program::ScaleColumns{}, {norm_, Vector(kCols / 2)}, {kTokens, kCols / 2});
        Emit(program::RowMoments{}, {norm_}, {kTokens, 2}, DType::kF64);
        const ValueId moments = Emit(program::RowMoments{}, {norm_}, {kTokens, 2});
        Emit(program::Sparsify{kCols, 0.5f}, {norm_, moments}, {kTokens, kCols});
        const ValueId bias = Weight({4, 1, kCols}, DType::kF32);
        const Shape half{kTokens, kCols / 2}, kept{6, kCols / 2};
        const ValueId rows = program.AddValue({Name(), DType::kF32, kept, Storage::kSlots});
        Emit(program::PoolWindows{true}, {norm_, norm_, positions_, bias, rows}, half);
    }

    void Products() {
        const Shape rows{kTokens, kCols};
        program::MatMul segmented;
        segmented.segment_cols = kCols;
        const ValueId wide =
            Emit(segmented, {attended_, Weight({kCols, kCols})}, rows, DType::kF64);
        Adapt(attended_, wide, kCols);
        const ValueId sum = Emit(program::AllReduce{}, {wide}, rows);
        const ValueId rounded = Emit(segmented, {sum, Weight({kCols, kCols})}, rows);
        Adapt(sum, rounded, kCols);
        ValueId y = Emit(program::Add{}, {rounded, x_}, rows);
        y = Emit(program::AllReduce{}, {y}, rows);
        y = Emit(program::AddBias{}, {y, Vector(kCols)}, rows);
        y = Emit(program::Scale{2}, {y}, rows);
        y = Emit(program::ScaleByPosition{{0.5f, 4}}, {y, positions_}, rows);
        y = Emit(program::SoftCap{30}, {y}, rows);
        y = Emit(program::Glu{}, {y, Product(y)}, rows);
        y = Emit(program::Glu{Activation::kSilu, 7}, {y, Product(y)}, rows);
        for (const Ungated kind : kEveryUngated) {
            y = Emit(program::Activate{kind, {0.5f, 0.7f, 0.5f, -1e-6f}}, {y}, rows);
        }
        program::RmsNorm norm{1e-5f, kCols / 2};
        norm.apart = true;
        y = Emit(norm, {y, Vector(kCols)}, rows);
        y = Emit(program::HeadMatMul{}, {Product(y, 2 * kCols), Weight({2, 16, kCols})}, rows);
        const ValueId padded = Emit(program::PadColumns{kCols / 2}, {y}, {kTokens, 2 * kCols});
        Emit(program::MatMul{}, {padded, Weight({kCols, 2 * kCols})}, rows);
        y_ = Emit(program::PickColumns{2, 8}, {y}, {kTokens, 16});
        program.ops.push_back({program::Send{1}, {y_}, {}});
        y_ = Emit(program::Recv{1}, {}, rows);
    }

    void Experts() {
        const ValueId ids = Activation({kTokens, 2}, DType::kI32);
        const ValueId weights = Activation({kTokens, 2});
        program::Route route;
        route.factors = true;
        program.ops.push_back({route, {Product(y_, 4), Vector(4), Vector(4)}, {ids, weights}});
        program::Route by_token;
        by_token.by_token = true;
        const ValueId table = Weight({64, 1, 2}, DType::kI32);
        program.ops.push_back({by_token,
                               {Product(y_, 4), tokens_, table},
                               {Activation({kTokens, 2}, DType::kI32), Activation({kTokens, 2})}});
        const Shape slots{kTokens, 2, kCols}, stack{4, kCols, kCols}, biases{4, 1, kCols};
        const ValueId gate = Emit(program::ExpertMatMul{}, {y_, ids, Weight(stack)}, slots);
        const ValueId up = Emit(program::ExpertMatMul{},
                                {y_, ids, Weight(stack), Weight(biases, DType::kF32)}, slots);
        const ValueId weighed = Activation(slots), rest = Activation({kTokens, 2});
        program.ops.push_back({program::WeighRows{0, 4}, {y_, ids, weights}, {weighed, rest}});
        Emit(program::IdentityExperts{2}, {y_, ids, weights}, program.value(y_).shape);
        const ValueId scaled = Emit(program::ExpertMatMul{}, {weighed, ids, Weight(stack)}, slots);
        Emit(program::ExpertSum{}, {scaled, ids, rest, Weight(stack)}, {kTokens, kCols});
        AdaptSlots(y_, ids, gate);
        const ValueId inner = Emit(program::Glu{}, {gate, up}, slots);
        const ValueId again = Emit(program::ExpertMatMul{}, {inner, ids, Weight(stack)}, slots);
        AdaptSlots(inner, ids, again);
        const Shape rows{kTokens, kCols};
        program::ExpertSum sum;
        const ValueId padded = Emit(program::PadColumns{8}, {again}, {kTokens, 2, 2 * kCols});
        const ValueId plain =
            Emit(sum, {padded, ids, weights, Weight({4, kCols, 2 * kCols})}, rows, DType::kF64);
        AdaptSum(again, ids, weights, plain);
        sum.bias = sum.base = true;
        const ValueId biased = Emit(
            sum, {inner, ids, weights, Weight(stack), Weight(biases, DType::kF32), plain}, rows);
        AdaptSum(inner, ids, weights, biased);
        y_ = Emit(program::GateRows{}, {biased, Product(biased, 1)}, rows);
        y_ = Emit(program::GateRows{program::RowGate::kSoftplus}, {y_, Product(biased, 4)}, rows);
    }

    void Ends() {
        const ValueId rows = Input("output_rows", kOutputs);
        const ValueId last = Emit(program::SelectRows{}, {y_, rows}, {kOutputs, kCols});
        const ValueId part = Emit(program::MatMul{}, {last, Weight({16, kCols})}, {kOutputs, 16});
        program::Adapt adapt{{1}, {program::Adapt::kA}, 0, true};
        program.ops.push_back(
            {adapt, {last, rows, Weight({16, kCols}, DType::kF32), part}, {part}});
        program::AllGather gather;
        gather.parts = {16, 16};
        Emit(gather, {part}, {kOutputs, 32});
    }

    const DType weights_;
    ValueId tokens_ = 0, positions_ = 0, x_ = 0, norm_ = 0, attended_ = 0, y_ = 0;
};

// ---- Training -----------------------------------------------------------------------------------

// Training Programs that together have every op of training.
inline const TrainingCase kEveryTrainingOp[] = {
    {.tied = true, .dtype = DType::kBF16, .temperature = 0.7f},
    {.recompute = program::Recompute::kFull, .scale = 0.5f},
    {.experts = true, .dtype = DType::kF16, .balance = true, .optimizer = "sgd"},
    {.experts = true, .tp = 3, .shard = 2, .optimizer = "sgd", .momentum = true},
    {.architecture = "qwen2", .dtype = DType::kBF16, .gradients = DType::kBF16, .tp = 2},
    {.architecture = "qwen2", .dtype = DType::kF16, .gradients = DType::kF16, .lora = true},
    {.architecture = "qwen2", .tp = 4, .shard = 1, .row_shares = true, .cap = 5},
    {.architecture = "qwen2moe", .experts = true, .optimizer = "adafactor"},
    {.architecture = "qwen3", .dtype = DType::kBF16, .tp = 2, .shard = 1, .row_shares = true},
    {.architecture = "qwen3",
     .recompute = program::Recompute::kSelective,
     .zero = {.stage = 1, .ranks = 2},
     .optimizer = "adam"},
    {.architecture = "qwen3",
     .tied = true,
     .weights = DType::kQ8_0,
     .dtype = DType::kBF16,
     .zero = {.stage = 2, .ranks = 2, .rank = 1},
     .optimizer = "adam8bit",
     .beside = true},
    {.architecture = "qwen3",
     .dtype = DType::kBF16,
     .recompute = program::Recompute::kFull,
     .zero = {.stage = 3, .ranks = 2, .rank = 1, .prefetch_elements = 900},
     .beside = true},
    {.architecture = "qwen3moe",
     .experts = true,
     .recompute = program::Recompute::kFull,
     .zero = {.stage = 3, .ranks = 3},
     .balance = true,
     .optimizer = "adafactor",
     .beside = true},
    {.architecture = "qwen3moe",
     .experts = true,
     .dtype = DType::kBF16,
     .tp = 2,
     .shard = 1,
     .row_shares = true,
     .balance = true},
    {.architecture = "qwen3moe",
     .experts = true,
     .weights = DType::kQ8_0,
     .dtype = DType::kBF16,
     .recompute = program::Recompute::kFull,
     .lora = true},
    {.dtype = DType::kF16, .recompute = program::Recompute::kFull, .temperature = 0.7f},
    {.weights = DType::kQ4_0, .zero = {.stage = 3, .ranks = 2}, .lora = true, .beside = true},
    {.weights = DType::kQ8_0, .zero = {.stage = 2, .ranks = 40, .rank = 39}, .lora = true},
    {.weights = DType::kQ8_0, .zero = {.stage = 3, .ranks = 40}, .lora = true, .beside = true},
    {.zero = {.stage = 3, .ranks = 40, .rank = 39}, .optimizer = "sgd"},
    {.experts = true, .pp = 2, .shard = 0, .balance = true},
    {.tied = true, .tp = 2, .pp = 2, .shard = 3, .row_shares = true},
    {.architecture = "granite", .dtype = DType::kBF16, .pp = 2, .chunks = 2, .scale = 0.25f},
    {.architecture = "olmo2", .dtype = DType::kBF16, .tp = 2, .shard = 1},
    {.tp = 2, .optimizer = "lion", .terms = {0.1f, 1e-4f, 1}, .noise = true},
    {.dtype = DType::kBF16,
     .zero = {.stage = 1, .ranks = 2},
     .optimizer = "schedule-free",
     .terms = {0.1f, 0, 1}},
    {.architecture = "qwen2", .lora = true, .optimizer = "schedule-free"},
    {.experts = true, .dtype = DType::kBF16, .optimizer = "muon"},
    {.dtype = DType::kBF16, .cp = 2},
};

// ---- Devices ------------------------------------------------------------------------------------

enum class Use { kInference, kTraining };

// An op that a device does not lower.
struct NotLowered {
    program::OpKind kind;
    Use use;
    const char* why;
};

// Fails unless `lowered` has each op of `use` that is not in `reasons`, and no op that is.
inline void ExpectEveryOp(Use use, const std::set<program::OpKind>& lowered,
                          std::span<const NotLowered> reasons) {
    using program::Pass;
    for (size_t i = 0; i < program::kOpKinds; ++i) {
        const auto kind = static_cast<program::OpKind>(i);
        const Pass pass = program::RowOf(kind).pass;
        const bool infers = pass == Pass::kInference || pass == Pass::kBoth;
        const bool used = use == Use::kInference ? infers : pass != Pass::kInference;
        const auto reason = std::ranges::find_if(
            reasons, [&](const NotLowered& row) { return row.kind == kind && row.use == use; });
        const bool expected = used && reason == reasons.end();
        EXPECT_EQ(lowered.contains(kind), expected)
            << program::OpName(kind) << (used ? "" : " is not an op of this use")
            << (reason == reasons.end() ? "" : std::string(": but a row says: ") + reason->why);
    }
}

// The kinds of a Program's ops, if the device compiles it.
inline void AddCompiled(backend::Device& device, const program::ChunkedProgram& program,
                        const backend::CompileOptions& options, std::set<program::OpKind>& kinds) {
    const auto compiled = device.Compile(program, options);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    if (!compiled.ok()) return;
    for (const program::Op& op : program.program.ops) kinds.insert(op.kind());
}

// The options of a small step of EveryOp.
inline backend::CompileOptions SmallSteps() {
    backend::CompileOptions options;
    options.max_tokens = 5;
    options.max_outputs = 3;
    options.kv_pages = 2;
    options.state_slots = 3;
    return options;
}

}  // namespace weft::support
