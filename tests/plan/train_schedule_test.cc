// The walk of a pipeline's schedule against cases computed by hand.
#include "plan/train_schedule.h"

#include <gtest/gtest.h>

#include "plan/train_beside.h"

namespace weft::plan {
namespace {

std::vector<ChunkSeconds> Even(int chunks, double forward, double backward, double hop = 0) {
    return std::vector<ChunkSeconds>(static_cast<size_t>(chunks), {forward, backward, hop, hop});
}

// 1F1B of M micro-batches on P even stages ends after M + P - 1 forward and backward passes; the
// last stage ends P - 1 backward passes before the first.
TEST(WalkPipeline, EvenStages) {
    for (const int stages : {1, 2, 3, 4, 7}) {
        for (const int64_t m : {1, 2, 4, 9, 200}) {
            const PipelineWalk walk = WalkPipeline(stages, 1, Even(stages, 1, 2), m);
            EXPECT_DOUBLE_EQ(walk.end[0], 3.0 * static_cast<double>(m + stages - 1))
                << stages << " stages, " << m;
            EXPECT_DOUBLE_EQ(walk.end.back(), walk.end[0] - 2.0 * (stages - 1));
            for (const double busy : walk.busy) {
                EXPECT_DOUBLE_EQ(busy, 3.0 * static_cast<double>(m));
            }
        }
    }
}

// Interleaved: the pipeline fills and empties in a V-th of the time.
TEST(WalkPipeline, ChunksInTurns) {
    for (const auto& [stages, chunks, m] :
         {std::tuple(2, 2, 4), std::tuple(4, 3, 8), std::tuple(8, 3, 64)}) {
        const PipelineWalk walk = WalkPipeline(stages, chunks, Even(stages * chunks, 1, 1), m);
        EXPECT_DOUBLE_EQ(walk.end[0], 2.0 * (static_cast<double>(m) * chunks + stages - 1));
    }
}

// The table of docs/parallelism.md: two stages of two chunks, four micro-batches, 18 columns.
TEST(WalkPipeline, IsTheTableOfTheDocs) {
    const PipelineWalk walk = WalkPipeline(2, 2, Even(4, 1, 1), 4);
    EXPECT_EQ(walk.end, (std::vector<double>{18, 17}));
    const PipelineWalk without = WalkPipeline(2, 1, Even(2, 2, 2), 4);
    EXPECT_EQ(without.end, (std::vector<double>{20, 18}));
}

// Two stages, the second twice as slow, two micro-batches; by hand (F0 of stage 1 from 1 to 3):
//     stage 0   F0 0-1, F1 1-2, B0 5-6, B1 9-10
//     stage 1   F0 1-3, B0 3-5, F1 5-7, B1 7-9
TEST(WalkPipeline, WaitsForTheSlowerStage) {
    const std::vector<ChunkSeconds> chunks = {{1, 1, 0, 0}, {2, 2, 0, 0}};
    const PipelineWalk walk = WalkPipeline(2, 1, chunks, 2);
    EXPECT_EQ(walk.end, (std::vector<double>{10, 9}));
    EXPECT_EQ(walk.busy, (std::vector<double>{4, 8}));
}

// One micro-batch, two stages, a message of 0.5: F 0-1, sent by 1.5, F 1.5-2.5, B 2.5-3.5, sent by
// 4, B 4-5. A stage that waits for its own messages is busy for as long as they take.
TEST(WalkPipeline, MessagesTakeTime) {
    const PipelineWalk free = WalkPipeline(2, 1, Even(2, 1, 1, 0.5), 1);
    EXPECT_EQ(free.end, (std::vector<double>{5, 3.5}));
    EXPECT_EQ(free.busy, (std::vector<double>{2, 2}));
}

// Rounds that are not walked take as long as those that are.
TEST(WalkPipeline, ManyMicroBatchesAreAsIfWalked) {
    std::vector<ChunkSeconds> chunks;
    for (int i = 0; i < 8; ++i) chunks.push_back({1 + 0.1 * i, 2 - 0.05 * i, 0.3, 0.2});
    for (const int64_t m : {44, 100, 403}) {
        const PipelineWalk whole = WalkPipeline(8, 1, chunks, m, 1000);
        const PipelineWalk some = WalkPipeline(8, 1, chunks, m);
        EXPECT_LT(some.passes, 2 * 2 * 8 * 7 * 8);
        for (size_t s = 0; s < 8; ++s) {
            EXPECT_NEAR(some.end[s] / whole.end[s], 1, 1e-3) << m;
            EXPECT_NEAR(some.busy[s] / whole.busy[s], 1, 1e-12);
        }
    }
}

// Three units with ops of 2, gathers of 1: the first is waited for, the others come in time.
TEST(Beside, GathersHideBehindOps) {
    const std::vector<UnitSeconds> units(3, {2, 4, 1, 1});
    EXPECT_DOUBLE_EQ(WaitsForward(units, false, 0), 3);
    EXPECT_DOUBLE_EQ(WaitsForward(units, true, 0), 1);
    EXPECT_DOUBLE_EQ(WaitsForward(units, true, 0.1), 1.2);  // two of them slow the ops
    // And the sum of the last unit has nothing beside it.
    EXPECT_DOUBLE_EQ(WaitsBackward(units, false, 0), 6);
    EXPECT_DOUBLE_EQ(WaitsBackward(units, true, 0), 2);
}

// Gathers of 3 for ops of 2: the wire is never idle. Forward 3 + 3 + 3 + 2 - 6. Backward, ops of 1
// and sums of 1: gathers end at 3 and 6, the first sum at 7, the last gather at 9 or later.
TEST(Beside, TheWireLimits) {
    const std::vector<UnitSeconds> units(3, {2, 1, 3, 1});
    EXPECT_DOUBLE_EQ(WaitsForward(units, true, 0), 5);
    // g 0-3; g 3-6 beside ops 3-4, sum 6-7; ops 6-7, g 7-10, sum 10-11; ops 10-11, sum 11-12.
    EXPECT_DOUBLE_EQ(WaitsBackward(units, true, 0), 12 - 3);
}

}  // namespace
}  // namespace weft::plan
