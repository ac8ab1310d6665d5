// Shard plans of models with experts: divided by columns, whole in groups, and as block sizes
// permit.
#include <gtest/gtest.h>

#include "model/shard.h"
#include "support/tiny_model.h"

namespace weft::model {
namespace {

using support::TinySource;

Hyper ExpertHyper(int64_t columns) {
    Hyper h = support::TinyHyper("llama", false);
    h.hidden = 512;
    h.head_dim = 256;  // whole blocks of every type
    h.heads = h.kv_heads = 6;
    h.moe.experts = 10;
    h.moe.used = 2;
    h.moe.ffn = columns;
    h.vocab = 500;
    return h;
}

ShardPlan PlanOf(const Hyper& h, DType dtype, const Layout& layout) {
    const auto plan = PlanShards(h, TinySource(h, dtype), layout);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan.ok() ? *plan : ShardPlan();
}

TEST(ExpertShards, OneGroupCutsColumns) {
    const Hyper h = ExpertHyper(768);
    const ShardPlan plan = PlanOf(h, DType::kQ4_0, MakeLayout(2, 2, 1, {}).value());
    EXPECT_EQ(plan.shards[0].experts, (Span{0, 10}));
    EXPECT_EQ(plan.shards[0].expert_ffn, (Span{0, 384}));
    EXPECT_EQ(plan.shards[1].expert_ffn, (Span{384, 768}));
}

TEST(ExpertShards, GroupsHoldWholeExpertsByTheirShares) {
    const Hyper h = ExpertHyper(768);
    const ShardPlan plan = PlanOf(h, DType::kQ4_0, MakeLayout(4, 4, 1, {3, 3, 2, 2}, 2).value());
    for (int rank : {0, 1}) EXPECT_EQ(plan.shards[static_cast<size_t>(rank)].experts, (Span{0, 6}));
    for (int rank : {2, 3})
        EXPECT_EQ(plan.shards[static_cast<size_t>(rank)].experts, (Span{6, 10}));
    EXPECT_EQ(plan.shards[2].expert_ffn, (Span{0, 384}));
    EXPECT_EQ(plan.shards[3].expert_ffn, (Span{384, 768}));
    ASSERT_FALSE(plan.notes.empty());
    EXPECT_NE(plan.notes.back().find("10 experts whole in 2 groups of 2 tensor ranks: 0-5, 6-9"),
              std::string::npos)
        << plan.notes.back();
}

// Qwen3-30B-A3B in Q4_K: a cut inside the second of three blocks.
TEST(ExpertShards, NarrowExpertsAreCutInsideOfBlocks) {
    const Hyper h = ExpertHyper(768);
    const ShardPlan plan = PlanOf(h, DType::kQ4_K, MakeLayout(2, 2, 1, {}).value());
    EXPECT_EQ(plan.shards[0].layout.ep, 1);
    EXPECT_EQ(plan.shards[0].expert_ffn, (Span{0, 384}));
    EXPECT_EQ(plan.shards[1].expert_ffn, (Span{384, 768}));
}

// 256 columns are four pieces of 64: six ranks cannot share them.
TEST(ExpertShards, ABlockThatForbidsTheCutMakesGroups) {
    const Hyper h = ExpertHyper(256);
    const ShardPlan plan = PlanOf(h, DType::kQ4_K, MakeLayout(6, 6, 1, {}).value());
    EXPECT_EQ(plan.shards[0].layout.ep, 2);
    EXPECT_EQ(plan.shards[0].expert_ffn, (Span{0, 64}));
    EXPECT_EQ(plan.shards[5].experts, (Span{5, 10}));
    // With one group requested, it is refused, with a layout that works.
    const auto refused =
        PlanShards(h, TinySource(h, DType::kQ4_K), MakeLayout(6, 6, 1, {}, 1).value());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("--ep"), std::string::npos) << refused.error().message;
}

TEST(ExpertShards, GroupsThatDoNotFitAreRefused) {
    EXPECT_EQ(MakeLayout(4, 4, 1, {}, 3).error().code, ErrorCode::kUsage);
    const Hyper dense = support::TinyHyper("llama", false);
    const auto plan = PlanShards(dense, TinySource(dense), MakeLayout(2, 2, 1, {}, 2).value());
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage) << plan.error().message;
}

}  // namespace
}  // namespace weft::model
