// Ranks that wait while rank 0 writes the result.
#include "train/write_result.h"

#include <gtest/gtest.h>

#include "support/fake_cluster.h"
#include "support/wait.h"

namespace weft::train {
namespace {

// For any duration of a full disk (tests/cluster tests the waits).
TEST(WriteResult, ShowsProgressMeanwhile) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    {
        const WritingScope writes(cluster);
        ASSERT_TRUE(cluster.progress);
        const int64_t before = cluster.progress();
        EXPECT_TRUE(test::Until([&] { return cluster.progress() > before; }));
    }
    EXPECT_FALSE(cluster.progress);
}

}  // namespace
}  // namespace weft::train
