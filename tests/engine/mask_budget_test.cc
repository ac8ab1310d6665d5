// What masks may take of the loop: others keep half of their speed, and only who is at fault ends.
#include "engine/batch/mask_budget.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

TEST(MaskBudget, EndsWhoTakesMoreThanTheStepsEarn) {
    MaskBudget budget;
    int64_t greedy = 0, modest = 0;
    int64_t turns = 0;
    // A step of 1 ms earns 30,000: less than the greedy one spends.
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

}  // namespace
}  // namespace weft::engine
