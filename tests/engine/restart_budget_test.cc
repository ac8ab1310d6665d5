// Losses count only within the time window.
#include "engine/batch/restart_budget.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(RestartBudget, LossesAreForgivenAfterTheWindow) {
    RestartBudget budget(2, 1000);
    EXPECT_TRUE(budget.Allows(0));
    budget.Add(0);
    EXPECT_TRUE(budget.Allows(400 * kMs));
    budget.Add(400 * kMs);
    EXPECT_FALSE(budget.Allows(1000 * kMs)) << "both are within the window";
    EXPECT_TRUE(budget.Allows(1001 * kMs)) << "the first is forgiven";
    EXPECT_EQ(budget.Recent(1001 * kMs), 1);
    EXPECT_EQ(budget.Recent(1401 * kMs), 0);
}

TEST(RestartBudget, OneLossAnHourGoesOnForYears) {
    RestartBudget budget(10, 3'600'000);
    int64_t now_ns = 0;
    for (int hour = 0; hour < 20'000; ++hour) {
        now_ns += 3'600'000 * kMs;
        ASSERT_TRUE(budget.Allows(now_ns)) << hour;
        budget.Add(now_ns);
    }
}

TEST(RestartBudget, ManyInARowEndIt) {
    RestartBudget budget(10, 3'600'000);
    int64_t now_ns = 0;
    for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(budget.Allows(now_ns)) << i;
        budget.Add(now_ns += 60'000 * kMs);
    }
    EXPECT_FALSE(budget.Allows(now_ns));
}

TEST(RestartBudget, AWindowThatNeverEnds) {
    for (const int64_t window_ms : {int64_t{1} << 50, INT64_MAX / kMs + 1, INT64_MAX}) {
        RestartBudget budget(1, window_ms);
        budget.Add(0);
        EXPECT_FALSE(budget.Allows(int64_t{1} << 62)) << window_ms;
    }
}

TEST(RestartBudget, WithoutAWindowTheyCountForEver) {
    RestartBudget budget(1, 0);
    budget.Add(0);
    EXPECT_FALSE(budget.Allows(int64_t{1} << 60));
    EXPECT_FALSE(RestartBudget(0, 1000).Allows(0)) << "none is got over";
}

}  // namespace
}  // namespace weft::engine
