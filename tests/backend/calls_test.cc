// Slots of calls: a Program with every op of inference is lowered, and each address in a call's
// arguments must be one of its slots. Barriers, halves and binding use the slots, so an address
// without one would be a race.
#include "backend/cpu/call.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/step_parts.h"
#include "support/lowered_calls.h"

namespace weft::backend {
namespace {

using program::kOutputs;
using program::kTokens;
using program::Op;
using program::OpAttributes;
using program::OpKind;
using program::Program;
using program::Shape;
using program::Storage;
using program::ValueId;

using Lowered = support::LoweredCalls;

constexpr int64_t kCols = 32;

// Each op in at least one form.
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
    Program program;

  private:
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
        program.ops.push_back({program::Adapt{{1}, segment}, {x, a, b, y}, {y}});
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
        const program::DeltaRule ssd{.key_heads = 2, .ssd = true};
        Emit(ssd, {x, y, y, decay, Vector(2), Vector(2), Vector(2), slots({2, 16, 16})}, rows);
    }

    void Streams() {
        const program::StreamWeights weigh{.streams = 2, .iterations = 3};
        const ValueId logits = Product(norm_, 8), weights = Activation({kTokens, 8});
        program.ops.push_back({weigh, {logits, Vector(8), Vector(3)}, {weights}});
        const ValueId merged =
            Emit(program::MergeStreams{2}, {norm_, weights}, {kTokens, kCols / 2});
        Emit(program::MixStreams{2}, {norm_, weights, merged}, {kTokens, kCols});
        Emit(program::MixStreams{2}, {merged}, {kTokens, kCols});
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
        y = Emit(program::ReluSquared{}, {y}, rows);
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
        const ValueId scaled = Emit(program::ExpertMatMul{}, {weighed, ids, Weight(stack)}, slots);
        Emit(program::ExpertSum{}, {scaled, ids, rest, Weight(stack)}, {kTokens, kCols});
        const ValueId inner = Emit(program::Glu{}, {gate, up}, slots);
        const ValueId again = Emit(program::ExpertMatMul{}, {inner, ids, Weight(stack)}, slots);
        const Shape rows{kTokens, kCols};
        program::ExpertSum sum;
        const ValueId padded = Emit(program::PadColumns{8}, {again}, {kTokens, 2, 2 * kCols});
        const ValueId plain =
            Emit(sum, {padded, ids, weights, Weight({4, kCols, 2 * kCols})}, rows, DType::kF64);
        sum.bias = sum.base = true;
        const ValueId biased = Emit(
            sum, {inner, ids, weights, Weight(stack), Weight(biases, DType::kF32), plain}, rows);
        y_ = Emit(program::GateRows{}, {biased, Product(biased, 1)}, rows);
        y_ = Emit(program::GateRows{program::RowGate::kSoftplus}, {y_, Product(biased, 4)}, rows);
    }

    void Ends() {
        const ValueId rows = Input("output_rows", kOutputs);
        const ValueId last = Emit(program::SelectRows{}, {y_, rows}, {kOutputs, kCols});
        const ValueId part = Emit(program::MatMul{}, {last, Weight({16, kCols})}, {kOutputs, 16});
        program::AllGather gather;
        gather.parts = {16, 16};
        Emit(gather, {part}, {kOutputs, 32});
    }

    const DType weights_;
    ValueId tokens_ = 0, positions_ = 0, x_ = 0, norm_ = 0, attended_ = 0, y_ = 0;
};

bool RunsInInference(OpKind kind) {
    const program::Pass pass = program::RowOf(kind).pass;
    return pass == program::Pass::kInference || pass == program::Pass::kBoth;
}

CompileOptions SmallSteps() {
    CompileOptions options;
    options.max_tokens = 5;
    options.max_outputs = 3;
    options.kv_pages = 2;
    options.state_slots = 3;
    return options;
}

// Calls f(lowered, calls) for both lists, with prepared and unprepared weights.
template <typename F>
void ForEachList(const F& f) {
    for (const CpuLevel level : {CpuLevel::kReference, BestCpuLevel(DetectCpu())}) {
        for (const DType weights : {DType::kF32, DType::kQ8_0, DType::kBF16}) {
            const Lowered lowered({EveryOp(weights).program}, SmallSteps(), level);
            f(lowered, lowered.lists.plain);
            f(lowered, lowered.lists.adapted);
        }
    }
}

TEST(Calls, EveryOpOfInferenceIsTried) {
    const Program program = EveryOp(DType::kF32).program;
    for (size_t i = 0; i < program::kOpKinds; ++i) {
        const auto kind = static_cast<OpKind>(i);
        const bool tried = std::ranges::count(program.ops, kind, &Op::kind) > 0;
        EXPECT_EQ(tried, RunsInInference(kind)) << program::OpName(kind);
    }
}

TEST(Calls, EveryAddressInArgumentsIsASlot) {
    ForEachList(support::ExpectAddressesAreSlots);
}

TEST(Calls, SlotsHaveTheSizesOfTheirValues) {
    ForEachList(support::ExpectSlotsHaveSizesOfValues);
}

// Every activation is written by its writer's calls. It is read by its readers' calls, or by an
// earlier call that prepares it for them.
TEST(Calls, TouchWhatTheirOpsNameAsOperands) {
    ForEachList([](const Lowered& lowered, const std::vector<Call>& calls) {
        const Program& program = lowered.program;
        std::vector<int32_t> read(program.values.size(), -1), written(read);
        for (const Call& call : calls) {
            for (const OperandRef& slot : call.slots) {
                if (slot.region.value == program::kNoValue) continue;
                const auto id = static_cast<size_t>(slot.region.value);
                if (slot.access != MemoryAccess::kWrite) read[id] = std::max(read[id], call.op);
                if (slot.access != MemoryAccess::kRead) {
                    written[id] = std::max(written[id], call.op);
                }
            }
        }
        const bool adapts = &calls == &lowered.lists.adapted;
        for (size_t i = 0; i < program.ops.size(); ++i) {
            const Op& op = program.ops[i];
            if (op.kind() == OpKind::kAdapt && !adapts) continue;
            for (const ValueId id : op.inputs) {
                const Storage storage = program.value(id).storage;
                if (storage == Storage::kActivation || storage == Storage::kState ||
                    storage == Storage::kSlots) {
                    EXPECT_GE(read[static_cast<size_t>(id)], 0) << program.value(id).name;
                }
            }
            for (const ValueId id : op.outputs) {
                EXPECT_GE(written[static_cast<size_t>(id)], static_cast<int32_t>(i))
                    << program.value(id).name;
            }
        }
    });
}

TEST(Calls, BarriersKeepWritersApart) {
    ForEachList(support::ExpectBarriersKeepWritersApart);
}

TEST(Calls, OpsWhoseRowsNeedOthersAreNotCut) {
    ForEachList([](const Lowered& lowered, const std::vector<Call>& calls) {
        for (const Call& call : calls) {
            const OpKind kind = lowered.program.ops[static_cast<size_t>(call.op)].kind();
            const bool cut =
                program::RowOf(kind).Is(program::Trait::kRowWise | program::Trait::kSeesEarlier);
            EXPECT_TRUE(call.whole || cut) << program::OpName(kind);
        }
    });
}

// A split call moves exactly its addresses with rows.
TEST(Calls, HalvesMoveWhatIsByRows) {
    ForEachList([&](const Lowered&, const std::vector<Call>& calls) {
        for (const Call& lowered : calls) {
            const bool transfer = lowered.communicates() && lowered.kind != CallKind::kAllReduce;
            if (lowered.per_output() || lowered.whole || transfer) continue;
            Call whole = lowered;
            BindCall(whole, {5, 3});
            Call half = whole;
            ShiftRows(half, {2, 3, {}, {}, {}, {}});
            const bool finds = whole.bound == Bound::kSequences || whole.bound == Bound::kStates ||
                               whole.bound == Bound::kAdapted;
            for (const OperandRef& slot : whole.slots) {
                if (slot.at == OperandRef::kNowhere) continue;
                EXPECT_EQ(half.args.Load<const std::byte*>(slot.at) -
                              whole.args.Load<const std::byte*>(slot.at),
                          finds ? 0 : 2 * slot.region.row_bytes);
            }
            if (finds || whole.rows.at == OperandRef::kNowhere) continue;
            EXPECT_EQ(5 * half.args.Load<int64_t>(whole.rows.at),
                      3 * whole.args.Load<int64_t>(whole.rows.at));
        }
    });
}

}  // namespace
}  // namespace weft::backend
