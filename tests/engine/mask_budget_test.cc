// Time limits for grammar masks: other sequences keep half of their speed, and only the sequence
// that exceeds its budget ends.
#include "engine/batch/mask_budget.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

TEST(MaskBudget, EndsARequestBeyondItsBudget) {
    MaskBudget budget;
    int64_t greedy = 0, modest = 0;
    int64_t turns = 0;
    // A step of 1 ms earns 30,000, less than the greedy sequence spends.
    for (bool goes_on = true; goes_on && turns < 10'000; ++turns) {
        budget.Earn(1e-3);
        EXPECT_TRUE(budget.Spend(1'000, modest)) << "it is not the one";
        goes_on = budget.Spend(300'000, greedy);
    }
    EXPECT_GT(turns, 20) << "the begin is free";
    EXPECT_LT(turns, 40);
    EXPECT_TRUE(budget.Spend(1'000, modest));
}

TEST(MaskBudget, GoesOnWhereTheStepsEarnIt) {
    MaskBudget budget;
    int64_t own = 0;
    for (int turn = 0; turn < 10'000; ++turn) {
        budget.Earn(10e-3);  // 300,000
        ASSERT_TRUE(budget.Spend(290'000, own)) << turn;
    }
}

TEST(MaskBudget, ADebtIsPaidInBoundedTime) {
    MaskBudget budget;
    int64_t own = 0, next = 0;
    EXPECT_FALSE(budget.Spend(uint64_t{1} << 40, own));
    for (int turn = 0; turn < 300; ++turn) budget.Earn(2e-3);
    EXPECT_TRUE(budget.Spend(MaskBudget::kFree + 1, next));
    budget.Earn(1e300);
    EXPECT_TRUE(budget.Spend(MaskBudget::kMost, next));
    EXPECT_FALSE(budget.Spend(1, next));
}

// 32 requests that begin in every step, each with its free allowance.
TEST(MaskBudget, BeginningsTogetherHaveABoundToo) {
    MaskBudget budget;
    int64_t spent = 0, modest = 0;
    for (int turn = 0; turn < 1000; ++turn) {
        budget.Earn(1e-3);
        for (int request = 0; request < 32; ++request) {
            int64_t own = 0;
            while (own < MaskBudget::kFree && budget.Spend(10'000, own)) spent += 10'000;
        }
        EXPECT_TRUE(budget.Spend(10, modest)) << "who takes little goes on";
    }
    // One second: earned, free, and each sequence's minimum.
    EXPECT_LT(spent, MaskBudget::kMost + MaskBudget::kStepsASecond + 2 * MaskBudget::kFreeASecond +
                         32'000 * MaskBudget::kSure);
}

}  // namespace
}  // namespace weft::engine
