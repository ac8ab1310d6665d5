#include "program/context_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "program/differentiate.h"
namespace weft::program {
namespace {

constexpr int64_t kHeadDim = 8;

// A layer of attention between two products.
struct Layer {
    Program program;
    ValueId x = kNoValue;

    Layer(int64_t heads, int64_t kv_heads, Attention attention = {}) {
        const ValueId tokens =
            program.AddValue({"tokens", DType::kI32, {kTokens}, Storage::kInput});
        x = program.Emit(Embedding{}, {tokens, Weight("table", 32, 16)}, "x", {kTokens, 16});
        const auto project = [&](const char* name, int64_t count) {
            return program.Emit(MatMul{}, {x, Weight(std::string("w.") + name, count, 16)}, name,
                                {kTokens, count});
        };
        const ValueId q = project("q", heads * kHeadDim), k = project("k", kv_heads * kHeadDim),
                      v = project("v", kv_heads * kHeadDim);
        attention.heads = heads;
        attention.kv_heads = kv_heads;
        attention.head_dim = kHeadDim;
        attention.group = heads / kv_heads;
        const ValueId out = program.Emit(attention, {q, k, v}, "attn", {kTokens, heads * kHeadDim});
        program.Emit(MatMul{}, {out, Weight("w.o", 16, heads * kHeadDim)}, "y", {kTokens, 16});
    }
    ValueId Weight(const std::string& name, int64_t rows, int64_t cols) {
        return program.AddValue({name, DType::kF32, {rows, cols}, Storage::kWeight, {name}});
    }
};

const Op& AttentionOf(const Program& program) {
    return *std::ranges::find(program.ops, OpKind::kAttention, &Op::kind);
}

TEST(ContextParallel, RanksDivideRowsAndHeads) {
    for (const int ranks : {2, 3, 5, 6}) {
        int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const auto divided = ApplyContextParallel(Layer(6, 2).program, rank, ranks);
            ASSERT_TRUE(divided.ok()) << divided.error().message;
            const Op& op = AttentionOf(*divided);
            const auto& a = op.as<Attention>();
            EXPECT_EQ(a.first_head, next);
            next += a.heads;
            // Every head finds its KV head.
            EXPECT_LE(a.first_kv_head, a.first_head / a.group);
            EXPECT_LT((a.first_head + a.heads - 1) / a.group, a.first_kv_head + a.kv_heads);
            EXPECT_EQ(divided->value(op.inputs[0]).shape, (Shape{kTokens, a.heads * kHeadDim}));
            EXPECT_EQ(divided->value(op.inputs[1]).shape, (Shape{kTokens, a.kv_heads * kHeadDim}));
            for (const char* name : {"x", "q", "k", "v", "attn", "y"}) {
                EXPECT_EQ(divided->value(divided->Find(name)).shape[0], RowShare(ranks)) << name;
            }
            EXPECT_EQ(divided->value(divided->Find("tokens")).shape, Shape{RowShare(ranks)});
            EXPECT_EQ(std::ranges::count(divided->ops, OpKind::kAllToAll, &Op::kind), 4);
        }
        EXPECT_EQ(next, 6);
    }
}

TEST(ContextParallel, OneRankIsUnchanged) {
    const Program layer = Layer(4, 4).program;
    EXPECT_EQ(Print(*ApplyContextParallel(layer, 0, 1)), Print(layer));
}

TEST(ContextParallel, SlopesAreThoseOfOwnHeads) {
    Attention attention;
    attention.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    const auto divided = ApplyContextParallel(Layer(4, 4, attention).program, 1, 2);
    EXPECT_EQ(AttentionOf(*divided).as<Attention>().slopes, (std::vector<float>{0.125f, 0.0625f}));
}

// The gradient of each exchange is the exchange back.
TEST(ContextParallel, TheGradientExchangesBack) {
    auto divided = ApplyContextParallel(Layer(4, 2).program, 0, 2);
    DifferentiateOptions options;
    options.output = divided->Find("y");
    const auto both = Differentiate(*divided, options);
    ASSERT_TRUE(both.ok()) << both.error().message;
    int to_columns = 0, to_rows = 0;
    for (const Op& op : both->program.ops) {
        if (op.kind() != OpKind::kAllToAll) continue;
        ++(op.as<AllToAll>().to_columns ? to_columns : to_rows);
    }
    EXPECT_EQ(to_columns, 4);  // q, k, v; the gradient of the result
    EXPECT_EQ(to_rows, 4);
}

TEST(ContextParallel, RefusesWhatNeedsOtherRows) {
    const auto refused = [](const Program& program, int ranks, const std::string& what) {
        const auto divided = ApplyContextParallel(program, 0, ranks);
        ASSERT_FALSE(divided.ok());
        EXPECT_EQ(divided.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(divided.error().message.find(what), std::string::npos) << divided.error().message;
    };
    refused(Layer(4, 2).program, 5, "a layer has 4");
    Layer recurrent(4, 2);
    const ValueId taps = recurrent.Weight("taps", 16, 4);
    recurrent.program.Emit(CausalConv{}, {recurrent.x, taps}, "conv", {kTokens, 16});
    refused(recurrent.program, 2, "causal_conv needs all rows of a sequence");
}

}  // namespace
}  // namespace weft::program
