// Differentiate on small Programs: each rule alone against finite differences, and the refusals.
#include "program/differentiate.h"

#include <gtest/gtest.h>

#include <set>

#include "program/sharding.h"
#include "support/interpreter.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

using support::Formula;

// A Program under construction, with names that do not matter.
struct Sketch {
    Program program;

    ValueId Add(Storage storage, Shape shape, DType dtype = DType::kF32) {
        Value value;
        value.name = fmt::format("v{}", program.values.size());
        value.dtype = dtype;
        value.shape = shape;
        value.storage = storage;
        return program.AddValue(value);
    }
    ValueId Weight(Shape shape) { return Add(Storage::kWeight, shape); }
    ValueId Indices(int64_t dim) { return Add(Storage::kInput, {dim}, DType::kI32); }
    ValueId Emit(OpAttributes attributes, std::vector<ValueId> inputs, Shape shape) {
        return program.Emit(std::move(attributes), std::move(inputs),
                            fmt::format("v{}", program.values.size()), shape);
    }
    // A weight [vocabulary, n] looked up by `tokens`: gives rows that need a gradient.
    ValueId Rows(ValueId tokens, int64_t n) {
        return Emit(Embedding{}, {tokens, Weight({6, n})}, {kTokens, n});
    }
    Result<Differentiated> Back(ValueId output, std::vector<ValueId> weights = {}) const {
        return Differentiate(program, {output, std::move(weights)});
    }
};

constexpr int64_t kRows = 5, kPicked = 3;

// Integer inputs of the step: tokens 0..5 with repeats, positions, rows.
std::vector<double> Indices(const Value& value) {
    if (value.shape[0] == kOutputs) return {4, 1, 4};
    return {3, 0, 3, 5, 2};
}

// Runs the backward Program of `sketch` and compares each weight's gradient, element by element,
// with finite differences of L = sum(dy * y). The five-point rule's error at h = 1e-3 is
// h^4/30 * 1e2, and rounding 1e-15 / h.
void ExpectGradients(const Sketch& sketch, ValueId output) {
    const auto back = sketch.Back(output);
    ASSERT_TRUE(back.ok()) << back.error().message;
    support::World<double> world({back->program}, 1);
    for (size_t i = 0; i < sketch.program.values.size(); ++i) {
        const Value& value = sketch.program.values[i];
        auto& data = world.at(0, static_cast<ValueId>(i));
        if (value.storage == Storage::kInput) data = Indices(value);
        if (value.storage != Storage::kWeight) continue;
        for (int64_t j = 0; j < value.shape.Elements(0, 0); ++j) {
            data.push_back(Formula(value.name, static_cast<uint32_t>(j)));
        }
    }
    const int64_t size = sketch.program.value(output).shape.Elements(kRows, kPicked);
    auto& dy = world.at(0, back->output_gradient);
    for (int64_t j = 0; j < size; ++j) dy.push_back(Formula("dy", static_cast<uint32_t>(j)));
    const std::vector<kernels::Sequence> sequences = {{0, 3, 0, {}}, {3, 2, 0, {}}};
    const auto loss = [&] {
        EXPECT_EQ(world.Run(kRows, kPicked, sequences), "");
        double sum = 0;
        for (size_t j = 0; j < dy.size(); ++j) sum += dy[j] * world.at(0, output)[j];
        return sum;
    };
    loss();
    std::vector<std::vector<double>> gradients;
    for (const WeightGradient& g : back->gradients) gradients.push_back(world.at(0, g.gradient));
    for (size_t i = 0; i < gradients.size(); ++i) {
        auto& weight = world.at(0, back->gradients[i].weight);
        for (size_t j = 0; j < weight.size(); ++j) {
            const double kept = weight[j], h = 1e-3;
            const auto at = [&](double step) {
                weight[j] = kept + step;
                return loss();
            };
            const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
            weight[j] = kept;
            EXPECT_LE(std::abs(slope - gradients[i][j]), 1e-9)
                << "weight " << i << " [" << j << "]";
        }
    }
}

TEST(Differentiate, AValueReadByManyOpsSumsTheirGradients) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    const ValueId x = s.Rows(tokens, 4);
    const ValueId twice = s.Emit(Add{}, {x, x}, {kTokens, 4});
    const ValueId gated = s.Emit(Glu{}, {x, twice}, {kTokens, 4});
    ExpectGradients(s, s.Emit(Add{}, {gated, x}, {kTokens, 4}));
}

TEST(Differentiate, AWeightUsedTwiceSumsItsGradients) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    const ValueId table = s.Weight({6, 4});
    const ValueId x = s.Emit(Embedding{}, {tokens, table}, {kTokens, 4});
    ExpectGradients(s, s.Emit(MatMul{}, {x, table}, {kTokens, 6}));
}

TEST(Differentiate, AnEmbeddingTableThatHoldsOnlySomeRows) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    ExpectGradients(s, s.Emit(Embedding{2}, {tokens, s.Weight({2, 4})}, {kTokens, 4}));
}

TEST(Differentiate, MatMulWithBias) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 4);
    ExpectGradients(s, s.Emit(MatMul{}, {x, s.Weight({3, 4}), s.Weight({3})}, {kTokens, 3}));
}

TEST(Differentiate, NormOverWholeRowsAndOverGroups) {
    for (const int64_t group : {6, 2}) {
        Sketch s;
        const ValueId x = s.Rows(s.Indices(kTokens), 6);
        ExpectGradients(s, s.Emit(RmsNorm{0.5f, group}, {x, s.Weight({group})}, {kTokens, 6}));
    }
}

TEST(Differentiate, RopeOfEitherPairsOverPartOfAHead) {
    for (const bool neighbours : {false, true}) {
        Sketch s;
        const ValueId x = s.Rows(s.Indices(kTokens), 12);
        const Rope rope{6, 4, neighbours, 1, {1.0f, 0.3f}};
        ExpectGradients(s, s.Emit(rope, {x, s.Indices(kTokens)}, {kTokens, 12}));
    }
}

TEST(Differentiate, FactorsOfPositions) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 5);
    const ScaleByPosition op{{0.4f, 2, 1}};
    ExpectGradients(s, s.Emit(op, {x, s.Indices(kTokens)}, {kTokens, 5}));
}

// Heads 3, 4 and 5 read KV heads 1, 2 and 2.
Attention HeadsInsideGroups() {
    Attention attention;
    attention.heads = 3;
    attention.kv_heads = attention.head_dim = 2;
    attention.first_head = 3;
    attention.first_kv_head = 1;
    attention.group = 2;
    attention.scale = 0.7f;
    return attention;
}

TEST(Differentiate, AttentionWithGroupsThatBeginInsideAKvHead) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    const ValueId q = s.Rows(tokens, 6), k = s.Rows(tokens, 4), v = s.Rows(tokens, 4);
    ExpectGradients(s, s.Emit(HeadsInsideGroups(), {q, k, v}, {kTokens, 6}));
}

TEST(Differentiate, AttentionWithWindowsAndSoftCaps) {
    for (const int64_t window : {0, 1, 2, 3, 9}) {
        for (const float soft_cap : {0.0f, 0.3f, 4.0f}) {
            SCOPED_TRACE(testing::Message() << "window " << window << ", cap " << soft_cap);
            Sketch s;
            const ValueId tokens = s.Indices(kTokens);
            const ValueId q = s.Rows(tokens, 6), k = s.Rows(tokens, 4), v = s.Rows(tokens, 4);
            Attention attention = HeadsInsideGroups();
            attention.window = window;
            attention.soft_cap = soft_cap;
            ExpectGradients(s, s.Emit(attention, {q, k, v}, {kTokens, 6}));
        }
    }
}

TEST(Differentiate, SelectedRowsWithARepeat) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 3);
    ExpectGradients(s, s.Emit(SelectRows{}, {x, s.Indices(kOutputs)}, {kOutputs, 3}));
}

TEST(Differentiate, SoftCap) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 7);
    ExpectGradients(s, s.Emit(SoftCap{1.5f}, {x}, {kTokens, 7}));
}

TEST(Differentiate, CrossEntropyIsALossToStartFrom) {
    for (const bool changed : {false, true}) {
        Sketch s;
        const ValueId x = s.Rows(s.Indices(kTokens), 5);
        LinearCrossEntropy loss;
        if (changed) loss.scale = 0.7f, loss.soft_cap = 2, loss.biased = true;
        const ValueId rows = s.Emit(SelectRows{}, {x, s.Indices(kOutputs)}, {kOutputs, 5});
        std::vector<ValueId> inputs = {rows, s.Weight({7, 5}), s.Indices(kOutputs)};
        if (changed) inputs.push_back(s.Weight({7}));
        ExpectGradients(s, s.Emit(loss, inputs, {kOutputs}));
    }
}

// ---- Experts ----------------------------------------------------------------------------------

// Rows of 4 columns, and a choice of 2 of 6 experts with its weights.
struct Chosen {
    ValueId x, ids, weights, logits;
};
Chosen Choose(Sketch& s, const Route& route) {
    const ValueId tokens = s.Indices(kTokens);
    Chosen c{s.Rows(tokens, 4), kNoValue, kNoValue, kNoValue};
    c.logits = s.Rows(tokens, 6);
    c.ids = s.Add(Storage::kActivation, {kTokens, 2}, DType::kI32);
    c.weights = s.Add(Storage::kActivation, {kTokens, 2});
    s.program.ops.push_back({route, {c.logits}, {c.ids, c.weights}});
    return c;
}

TEST(Differentiate, RoutesOfAllKinds) {
    for (const GateScore score : {GateScore::kSoftmax, GateScore::kSigmoid}) {
        for (const bool renormalise : {false, true}) {
            Sketch s;
            const Chosen c = Choose(s, {.score = score, .renormalise = renormalise, .scale = 1.5f});
            ExpectGradients(s, c.weights);
        }
    }
}

// This rank has four of six experts; rows of others give nothing.
TEST(Differentiate, ExpertsOfWhichThisRankHasSome) {
    Sketch s;
    const Chosen c = Choose(s, {.renormalise = true});
    const ValueId gate =
        s.Emit(ExpertMatMul{1}, {c.x, c.ids, s.Weight({4, 3, 4})}, {kTokens, 2, 3});
    const ValueId up = s.Emit(ExpertMatMul{1}, {c.x, c.ids, s.Weight({4, 3, 4})}, {kTokens, 2, 3});
    const ValueId rows = s.Emit(Glu{}, {gate, up}, {kTokens, 2, 3});
    ExpertSum sum{1};
    sum.base = true;
    ExpectGradients(s,
                    s.Emit(sum, {rows, c.ids, c.weights, s.Weight({4, 4, 3}), c.x}, {kTokens, 4}));
}

TEST(Differentiate, RowsWithAGate) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    const ValueId x = s.Rows(tokens, 4), gate = s.Rows(tokens, 1);
    ExpectGradients(s, s.Emit(GateRows{}, {x, gate}, {kTokens, 4}));
}

// Two layers' routers count together; counts are no function of a weight, but where a step is
// large enough to change a choice.
TEST(Differentiate, LoadBalanceOfTwoRouters) {
    Sketch s;
    const Chosen one = Choose(s, {}), two = Choose(s, {});
    const ValueId first = s.Emit(RouterLoad{}, {one.logits, one.ids}, {2, 6});
    const ValueId both = s.Emit(RouterLoad{}, {two.logits, two.ids, first}, {2, 6});
    ExpectGradients(s, s.Emit(LoadBalance{2}, {both}, {1}));
}

TEST(Differentiate, TwoOutputsHaveGradientsOfTheirOwn) {
    Sketch s;
    const ValueId tokens = s.Indices(kTokens);
    const ValueId x = s.Rows(tokens, 4), y = s.Emit(Scale{2}, {x}, {kTokens, 4});
    const auto back = Differentiate(s.program, {x, {}, y});
    ASSERT_TRUE(back.ok()) << back.error().message;
    support::World<double> world({back->program}, 1);
    world.at(0, tokens) = {3, 0, 3, 5, 2};
    world.at(0, s.program.ops[0].inputs[1]).assign(24, 1.0);
    world.at(0, back->output_gradient).assign(20, 1.0);
    world.at(0, back->side_gradient).assign(20, 10.0);
    ASSERT_EQ(world.Run(kRows, kPicked, {}), "");
    const auto& gradient = world.at(0, back->gradients.front().gradient);
    EXPECT_EQ(gradient[0], 21.0);
    EXPECT_EQ(gradient[12], 42.0);  // token 3, twice
}

TEST(Differentiate, CachesAreLeftOut) {
    const model::Hyper hyper = support::TinyHyper("llama", false);
    const support::TinySource source(hyper);
    const Program cached = support::Build(hyper, source, {}, {DType::kF16, true})[0];
    const auto back = Differentiate(cached, {cached.Find("logits"), {}});
    ASSERT_TRUE(back.ok()) << back.error().message;
    std::set<std::string> names;
    for (const Value& value : back->program.values) {
        EXPECT_TRUE(names.insert(value.name).second) << value.name << " stands for two values";
    }
    for (const Op& op : back->program.ops) {
        for (ValueId id : op.inputs) {
            EXPECT_NE(back->program.value(id).storage, Storage::kState);
        }
    }
}

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& what) {
    ASSERT_FALSE(result.ok()) << what;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(what), std::string::npos) << result.error().message;
}

TEST(Differentiate, RefusesWhatHasNoGradient) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 4);
    const ValueId quantized = s.Add(Storage::kWeight, {5, 32}, DType::kQ4_0);
    ExpectError(s.Back(x, {quantized}), ErrorCode::kUsage, "not a weight of a float type");
    ExpectError(s.Back(x, {0}), ErrorCode::kUsage, "not a weight of a float type");
    ExpectError(s.Back(x, {99}), ErrorCode::kUsage, "no such value");
    ExpectError(s.Back(99), ErrorCode::kUsage, "output 99");
    ExpectError(s.Back(0), ErrorCode::kUsage, "output 0");
    ExpectError(s.Back(kNoValue), ErrorCode::kUsage, "neither the output");
    const ValueId other = s.Weight({2, 4});
    ExpectError(s.Back(x, {other}), ErrorCode::kUsage, "neither the output");
}

TEST(Differentiate, RefusesASecondDerivative) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 4);
    const auto once = s.Back(x);
    ASSERT_TRUE(once.ok());
    ExpectError(Differentiate(once->program, {x, {}}), ErrorCode::kUnsupported,
                "op 1 (embedding_grad) has no gradient");
}

TEST(Differentiate, RefusesCollectivesThatDoNotFitTheirOperand) {
    const Shape shape{kTokens, 4};
    const auto refused = [&](const std::string& what, auto build) {
        Sketch s;
        const ValueId x = s.Rows(s.Indices(kTokens), 4);
        const ValueId start = s.Emit(RmsNorm{0.1f, 4}, {x, s.Weight({4})}, shape);
        ExpectError(s.Back(build(s, start)), ErrorCode::kUnsupported, what);
    };
    refused("is not a partial sum",
            [&](Sketch& s, ValueId x) { return s.Emit(AllReduce{}, {x}, shape); });
    refused("is not cut", [&](Sketch& s, ValueId x) {
        return s.Emit(MatMul{Cut::kColumns}, {x, s.Weight({4, 4})}, shape);
    });
    refused("is not whole", [&](Sketch& s, ValueId x) {
        const ValueId cut = s.Emit(MatMul{Cut::kRows}, {x, s.Weight({4, 4})}, shape);
        return s.Emit(MatMul{}, {cut, s.Weight({4, 4})}, shape);
    });
    refused("no all_reduce has summed", [&](Sketch& s, ValueId x) {
        const ValueId cut = s.Emit(MatMul{Cut::kRows}, {x, s.Weight({4, 4})}, shape);
        const ValueId part = s.Emit(MatMul{Cut::kColumns}, {cut, s.Weight({4, 4})}, shape);
        return s.Emit(Add{}, {x, part}, shape);
    });
    refused("is not cut over the tensor group", [&](Sketch& s, ValueId x) {
        return s.Emit(AllGather{Group::kTensor, {4, 4}, 0}, {x}, {kTokens, 8});
    });
    refused("is not a partial sum over the tensor group", [&](Sketch& s, ValueId x) {
        const ValueId cut = s.Emit(MatMul{Cut::kRows}, {x, s.Weight({4, 4})}, shape);
        const ValueId part = s.Emit(MatMul{Cut::kColumns}, {cut, s.Weight({4, 4})}, shape);
        return s.Emit(AllReduce{Group::kPipeline}, {part}, shape);
    });
}

TEST(InferSharding, NamesTheInputThatIsNotShardedByRows) {
    const Shape shape{kTokens, 4};
    for (const bool rows_first : {true, false}) {
        Sketch s;
        const ValueId x =
            s.Emit(RmsNorm{0.1f, 4}, {s.Rows(s.Indices(kTokens), 4), s.Weight({4})}, shape);
        const ValueId cut = s.Emit(MatMul{Cut::kRows}, {x, s.Weight({4, 4})}, shape);
        const ValueId part = s.Emit(MatMul{Cut::kColumns}, {cut, s.Weight({4, 4})}, shape);
        const ValueId rows = s.Emit(ReduceScatterRows{}, {part}, {RowShare(2), 4});
        s.Emit(Add{}, rows_first ? std::vector{rows, x} : std::vector{x, rows}, shape);
        ExpectError(InferSharding(s.program), ErrorCode::kUnsupported,
                    s.program.value(x).name + " is not sharded by rows");
    }
}

TEST(Differentiate, RefusesAValueWrittenTwice) {
    Sketch s;
    const ValueId x = s.Rows(s.Indices(kTokens), 4);
    s.program.ops.push_back(s.program.ops.back());
    ExpectError(s.Back(x), ErrorCode::kUnsupported, "is written twice");
}

}  // namespace
}  // namespace weft::program
