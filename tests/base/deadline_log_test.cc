// Deadlines, log lines, and the death of a failed check.
#include <gtest/gtest.h>

#include <thread>

#include "base/check.h"
#include "base/deadline.h"
#include "base/log.h"

namespace weft {
namespace {

TEST(Deadline, ExpiresWhenItsTimeIsUp) {
    const Deadline now = Deadline::In(0);
    EXPECT_TRUE(now.expired());
    EXPECT_EQ(now.left_ms(), 0);
    const Deadline later = Deadline::In(60'000);
    EXPECT_FALSE(later.expired());
    EXPECT_GT(later.left_ms(), 50'000);
    EXPECT_LE(later.left_ms(), 60'000);
    EXPECT_EQ(later.length_ms(), 60'000);
    const Deadline soon = Deadline::In(2);
    while (!soon.expired()) {
        ASSERT_GE(soon.left_ms(), 0);
        std::this_thread::yield();
    }
    EXPECT_EQ(soon.left_ms(), 0);
    EXPECT_EQ(Deadline::In(-5).left_ms(), 0);
}

TEST(Deadline, TimeLeftIsRoundedUp) {
    // A poll() of 0 ms in the last millisecond would spin.
    const Deadline deadline = Deadline::In(1);
    const int64_t left = deadline.left_ms();
    if (!deadline.expired()) {
        EXPECT_EQ(left, 1);
    }
}

class Log : public testing::Test {
  protected:
    void TearDown() override { SetLogRank(-1); }
    template <typename Function>
    static std::string Printed(Function function) {
        testing::internal::CaptureStderr();
        function();
        return testing::internal::GetCapturedStderr();
    }
};

TEST_F(Log, LinesCarryTheRankAndTheLevel) {
    EXPECT_EQ(Printed([] { weft::Log(LogLevel::kInfo, "loaded {} MiB", 3); }),
              "weft: loaded 3 MiB\n");
    SetLogRank(2);
    EXPECT_EQ(Printed([] { weft::Log(LogLevel::kInfo, "ready"); }), "[rank 2] ready\n");
    EXPECT_EQ(Printed([] { weft::Log(LogLevel::kError, "lost"); }), "[rank 2] error: lost\n");
    EXPECT_EQ(Printed([] { weft::Log(LogLevel::kWarning, "slow"); }), "[rank 2] warning: slow\n");
}

TEST_F(Log, LinesBelowTheLevelAreDropped) {
    EXPECT_EQ(Printed([] { weft::Log(LogLevel::kDebug, "no"); }), "");
    EXPECT_FALSE(LogEnabled(LogLevel::kDebug));
    EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
}

TEST(CheckDeathTest, NamesFileAndCondition) {
    EXPECT_DEATH(WEFT_CHECK(1 + 1 == 3), "deadline_log_test.cc.*1 \\+ 1 == 3");
    WEFT_CHECK(1 + 1 == 2);
}

}  // namespace
}  // namespace weft
