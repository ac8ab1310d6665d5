// The properties that walks derive from the rows of ops.
#include "program/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <type_traits>

#include "program/program.h"

namespace weft::program {
namespace {

std::vector<OpKind> AllKinds() {
    std::vector<OpKind> kinds;
    for (size_t i = 0; i < kOpKinds; ++i) kinds.push_back(static_cast<OpKind>(i));
    return kinds;
}

TEST(Ops, AttributesAreHeldByTheirType) {
    OpAttributes held = Scale{.factor = 3};
    EXPECT_EQ(held.kind(), OpKind::kScale);
    EXPECT_EQ(held.If<SoftCap>(), nullptr);
    ASSERT_NE(held.If<Scale>(), nullptr);
    const OpAttributes copy = held;
    held.If<Scale>()->factor = 4;
    EXPECT_EQ(copy.If<Scale>()->factor, 3);
    EXPECT_EQ(held.If<Scale>()->factor, 4);
    held = SoftCap{.cap = 5};
    EXPECT_EQ(held.kind(), OpKind::kSoftCap);
    EXPECT_EQ(held.If<Scale>(), nullptr);
    const auto name = [](const auto& attributes) {
        return std::string(std::decay_t<decltype(attributes)>::kRow.name);
    };
    EXPECT_EQ(held.Visit(name), "soft_cap");
    EXPECT_EQ(copy.Visit(name), "scale");
}

TEST(Ops, NamesAreUniqueAndInLowerCase) {
    std::set<std::string> names;
    for (const OpKind kind : AllKinds()) {
        const std::string name = OpName(kind);
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), name.npos)
            << name;
    }
    EXPECT_EQ(OpName(OpKind::kMatMul), std::string("mat_mul"));
    EXPECT_EQ(OpName(OpKind::kLinearCrossEntropyGrad), std::string("linear_cross_entropy_grad"));
}

std::string Text(const Op& op) {
    const std::optional<Operands> operands = OperandsOf(op);
    if (!operands) return "no";
    std::string text;
    for (const Operand* operand : operands->inputs) text += std::string(operand->name) + " ";
    text += "->";
    for (const Operand* operand : operands->outputs) text += " " + std::string(operand->name);
    return text;
}
Op Of(OpAttributes attributes, size_t inputs, size_t outputs) {
    return {std::move(attributes), std::vector<ValueId>(inputs), std::vector<ValueId>(outputs)};
}

TEST(Ops, OptionalOperandsAreThereAsAttributesOrNumbersSay) {
    EXPECT_EQ(Text(Of(MatMul{}, 2, 1)), "x weight -> y");
    EXPECT_EQ(Text(Of(MatMul{}, 3, 1)), "x weight bias -> y");
    EXPECT_EQ(Text(Of(MatMul{}, 1, 1)), "no");
    EXPECT_EQ(Text(Of(MatMul{}, 4, 1)), "no");
    EXPECT_EQ(Text(Of(MatMul{}, 2, 0)), "no");
    Attention attention;
    EXPECT_EQ(Text(Of(attention, 3, 1)), "q k v -> out");
    EXPECT_EQ(Text(Of(attention, 3, 2)), "q k v -> out lse");
    EXPECT_EQ(Text(Of(attention, 4, 1)), "no");
    EXPECT_EQ(Text(Of(attention, 5, 1)), "q k v k_cache v_cache -> out");
    attention.sinks = true;
    EXPECT_EQ(Text(Of(attention, 3, 1)), "no");
    EXPECT_EQ(Text(Of(attention, 4, 1)), "q k v sinks -> out");
    EXPECT_EQ(Text(Of(attention, 6, 1)), "q k v sinks k_cache v_cache -> out");
    Route route;
    EXPECT_EQ(Text(Of(route, 2, 2)), "logits bias -> ids weights");
    route.factors = true;
    EXPECT_EQ(Text(Of(route, 2, 2)), "logits factors -> ids weights");
    EXPECT_EQ(Text(Of(route, 3, 2)), "logits bias factors -> ids weights");
    ExpertSum sum;
    sum.base = true;
    EXPECT_EQ(Text(Of(sum, 5, 1)), "x ids weights weight base -> y");
    EXPECT_EQ(Text(Of(sum, 4, 1)), "no");
}

TEST(Ops, AccumulatedOutputIsTheLastInput) {
    EXPECT_EQ(Text(Of(MatMulGradWeight{}, 3, 1)), "dy x dw -> dw");
    EXPECT_EQ(Text(Of(MatMulGradWeight{}, 2, 1)), "no");
    EXPECT_EQ(Text(Of(LinearCrossEntropyGrad{}, 4, 1)), "dloss x weight targets -> dx");
    EXPECT_EQ(Text(Of(LinearCrossEntropyGrad{{}, true}, 5, 2)),
              "dloss x weight targets dw -> dx dw");
    EXPECT_EQ(Text(Of(Adapt{{1, 2}, {3, 3}}, 6, 1)), "x parts parts parts parts y -> y");
    EXPECT_EQ(Text(Of(SumSquares{}, 3, 1)), "x x x -> y");
    EXPECT_EQ(Text(Of(SumSquares{}, 0, 1)), "no");
}

TEST(Ops, WeightsOfProducts) {
    EXPECT_EQ(WeightInput(OpKind::kMatMul), 1u);
    EXPECT_EQ(WeightInput(OpKind::kExpertSum), 3u);
    EXPECT_EQ(WeightInput(OpKind::kExpertSumGradInput), 4u);
    EXPECT_EQ(WeightInput(OpKind::kEmbedding), std::nullopt);
}

TEST(Ops, OnlyTransfersOverlapComputation) {
    for (const OpKind kind : AllKinds()) {
        EXPECT_TRUE(RowOf(kind).Is(Trait::kTransfer) || !RowOf(kind).Is(Trait::kBeside))
            << OpName(kind);
    }
}

TEST(Ops, AnOpIsOneTransferOrItsTimeGoesByOneProductOrByAttention) {
    for (const OpKind kind : AllKinds()) {
        const OpRow& row = RowOf(kind);
        EXPECT_LE(std::popcount(row.traits & (Trait::kTransfer | Trait::kByFlops)), 1) << row.name;
        const bool reads_weight = row.Is(Trait::kProduct | Trait::kProductGradInput);
        EXPECT_TRUE(!reads_weight || WeightInput(kind)) << row.name;
    }
    EXPECT_TRUE(IsOfExperts(Of(ExpertMatMulGradWeight{}, 4, 1)));
    EXPECT_FALSE(IsOfExperts(Of(MatMulGradWeight{}, 3, 1)));
}

TEST(Ops, TypesAndStoragesOfOperandsAreChecked) {
    const auto passes = [](DType ids, DType y, Storage cache) {
        Program program;
        const ValueId tokens = program.AddValue({"t", ids, {kTokens}, Storage::kInput});
        const ValueId table = program.AddValue({"w", DType::kF32, {8, 4}, cache});
        const ValueId out = program.AddValue({"y", y, {kTokens, 4}});
        program.ops.push_back({Embedding{}, {tokens, table}, {out}});
        return CheckShapes(program).ok();
    };
    EXPECT_TRUE(passes(DType::kI32, DType::kF32, Storage::kWeight));
    EXPECT_FALSE(passes(DType::kF32, DType::kF32, Storage::kWeight));
    EXPECT_FALSE(passes(DType::kI32, DType::kI32, Storage::kWeight));
    EXPECT_FALSE(passes(DType::kI32, DType::kF64, Storage::kWeight));
    EXPECT_FALSE(passes(DType::kI32, DType::kF32, Storage::kState));
}

}  // namespace
}  // namespace weft::program
