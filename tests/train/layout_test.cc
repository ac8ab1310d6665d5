// Which rank has what, and in which order a pipeline stage runs its passes.
#include "train/parallel/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "train/parallel/pipeline.h"

namespace weft::train {
namespace {

TEST(TrainLayout, EveryRankHasItsOwnPlace) {
    for (const auto& [tp, pp, dp] : {std::tuple{1, 1, 3}, {2, 1, 2}, {3, 2, 1}, {2, 3, 2}}) {
        const int ranks = tp * pp * dp;
        std::set<std::tuple<int, int, int>> places;
        for (int rank = 0; rank < ranks; ++rank) {
            auto layout = MakeTrainLayout(ranks, rank, tp, pp, 0, {});
            ASSERT_TRUE(layout.ok()) << layout.error().message;
            EXPECT_EQ(layout->dp, dp);
            EXPECT_EQ(layout->RankOf(layout->stage, layout->replica, layout->tensor_rank), rank);
            EXPECT_EQ(layout->RankOfShard(layout->shard()), rank);
            places.insert({layout->stage, layout->replica, layout->tensor_rank});
            for (const auto& group : {layout->TensorGroup(), layout->DataGroup()}) {
                EXPECT_EQ(std::ranges::count(group, rank), 1);
                EXPECT_TRUE(std::ranges::is_sorted(group));
            }
        }
        EXPECT_EQ(places.size(), static_cast<size_t>(ranks));
    }
}

TEST(TrainLayout, NeighboursShareLayers) {
    const auto layout = MakeTrainLayout(8, 5, 2, 2, 2, {});
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->TensorGroup(), (std::vector<int>{4, 5}));
    EXPECT_EQ(layout->DataGroup(), (std::vector<int>{5, 7}));
}

TEST(TrainLayout, RefusesWhatDoesNotFit) {
    const std::tuple<int, int, int, int> wrong[] = {
        {4, 3, 1, 0}, {4, 2, 2, 2}, {2, -1, 1, 0}, {2, 1, 1, 3}, {2, 1 << 30, 1 << 30, 0}};
    for (const auto& [ranks, tp, pp, dp] : wrong) {
        const auto layout = MakeTrainLayout(ranks, 0, tp, pp, dp, {});
        ASSERT_FALSE(layout.ok());
        EXPECT_EQ(layout.error().code, ErrorCode::kUsage);
        EXPECT_NE(layout.error().message.find("--tp"), std::string::npos);
    }
}

TEST(Pipeline, EveryMicroBatchGoesThereAndBackInASlotOfItsOwn) {
    for (const int stages : {1, 2, 3, 5}) {
        for (const int64_t micro_batches : {1, 2, 4, 9}) {
            for (int stage = 0; stage < stages; ++stage) {
                std::map<int, int64_t> under_way;  // by slot
                int64_t forward = 0, backward = 0;
                for (const StagePass& pass : SchedulePasses(stage, stages, micro_batches)) {
                    ASSERT_LT(pass.slot, SlotsOf(stage, stages));
                    if (pass.forward) {
                        EXPECT_EQ(pass.micro_batch, forward++);
                        EXPECT_TRUE(under_way.emplace(pass.slot, pass.micro_batch).second);
                    } else {
                        EXPECT_EQ(pass.micro_batch, backward++);
                        EXPECT_EQ(under_way.at(pass.slot), pass.micro_batch);
                        under_way.erase(pass.slot);
                    }
                }
                EXPECT_EQ(forward, micro_batches);
                EXPECT_EQ(backward, micro_batches);
            }
        }
    }
}

// The last stage goes back at once; each one before it is one pass further ahead.
TEST(Pipeline, OneForwardOneBackward) {
    const auto text = [](int stage) {
        std::string order;
        for (const StagePass& pass : SchedulePasses(stage, 3, 4)) order += pass.forward ? 'f' : 'b';
        return order;
    };
    EXPECT_EQ(text(2), "fbfbfbfb");
    EXPECT_EQ(text(1), "ffbfbfbb");
    EXPECT_EQ(text(0), "fffbfbbb");
}

}  // namespace
}  // namespace weft::train
