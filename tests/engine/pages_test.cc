// The holders of pages, and the bugs of callers that would give one page to two texts.
#include "engine/batch/pages.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "engine/batch/scheduler.h"

namespace weft::engine {
namespace {

TEST(Pages, APageHasHoldersOrIsFree) {
    PagePool pool(2);
    const int32_t page = pool.Take();
    EXPECT_TRUE(pool.has_one_holder(page));
    pool.Hold(page);
    EXPECT_FALSE(pool.has_one_holder(page));
    pool.Release(page);
    pool.SetCached(page, true);
    EXPECT_FALSE(pool.has_one_holder(page));
    pool.Release(page);
    EXPECT_EQ(pool.idle(), 1);
    pool.Hold(page);
    EXPECT_EQ(pool.idle(), 0);
    pool.Release(page);
    pool.SetCached(page, false);
    EXPECT_EQ(pool.free(), 2);
}

TEST(PagesDeathTest, AFreePageCannotBeHeldCachedOrReleased) {
    PagePool pool(2);
    const int32_t page = pool.Take();
    pool.Release(page);
    EXPECT_DEATH(pool.Hold(page), "holders > 0");
    EXPECT_DEATH(pool.SetCached(page, true), "holders > 0");
    EXPECT_DEATH(pool.Release(page), "holders >= 0");
    EXPECT_DEATH(pool.Release(2), "pages_.size");
    EXPECT_DEATH(pool.Hold(-1), "page >= 0");
}

TEST(PagesDeathTest, AStepIsCommittedOnlyForThePlanThatItIs) {
    Scheduler scheduler({.pages = 8, .page_tokens = 4, .prefix_cache = false});
    Sequence sequence{.id = 1, .tokens = {1, 2, 3}};
    scheduler.Add(&sequence);
    StepData step;
    std::vector<PlannedRows> planned, next;
    ASSERT_TRUE(scheduler.Plan(step, planned));
    scheduler.Commit(planned);
    sequence.tokens.push_back(4);
    ASSERT_TRUE(scheduler.Plan(step, next));
    EXPECT_DEATH(scheduler.Commit(planned), "plan");
    scheduler.Remove(&sequence);
    EXPECT_DEATH(scheduler.Commit(next), "PagesFor");
}

}  // namespace
}  // namespace weft::engine
