// Result, Status, their macros, and the exit status for an error.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace weft {
namespace {

Result<int> Half(int value) {
    if (value % 2 != 0)
        return MakeError(ErrorCode::kUsage, "{} is odd; expected an even number", value);
    return value / 2;
}

Result<int> Quarter(int value) {
    WEFT_ASSIGN(const int half, Half(value));
    WEFT_ASSIGN(const int quarter, Half(half));
    return quarter;
}

Status CheckQuarters(std::initializer_list<int> values) {
    for (int value : values) WEFT_TRY(Quarter(value));
    return {};
}

TEST(Result, HoldsAValueOrAnError) {
    const Result<int> good = Half(6);
    ASSERT_TRUE(good.ok());
    EXPECT_TRUE(static_cast<bool>(good));
    EXPECT_EQ(*good, 3);
    const Result<int> bad = Half(7);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().code, ErrorCode::kUsage);
    EXPECT_EQ(bad.error().message, "7 is odd; expected an even number");
}

TEST(Result, MacrosPassTheFirstErrorOn) {
    EXPECT_EQ(Quarter(12).value(), 3);
    EXPECT_EQ(Quarter(6).error().message, "3 is odd; expected an even number");
    EXPECT_TRUE(CheckQuarters({4, 8, 12}).ok());
    EXPECT_EQ(CheckQuarters({4, 10, 7}).error().message, "5 is odd; expected an even number");
}

TEST(Result, MovesTypesThatCannotBeCopied) {
    Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
    EXPECT_EQ(**made, 5);
    const std::unique_ptr<int> taken = std::move(made).value();
    EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, TheWrongHalfIsABug) {
    EXPECT_DEATH(Half(7).value(), "result.h");
    EXPECT_DEATH(Half(6).error(), "result.h");
    EXPECT_DEATH(Status().error(), "result.h");
}

TEST(Result, ExitStatusDistinguishesUsageAndLostPeers) {
    EXPECT_EQ(ExitStatus(ErrorCode::kUsage), 2);
    EXPECT_EQ(ExitStatus(ErrorCode::kPeerLost), 3);
    for (ErrorCode code :
         {ErrorCode::kNotFound, ErrorCode::kCorrupt, ErrorCode::kUnsupported, ErrorCode::kIo,
          ErrorCode::kOutOfMemory, ErrorCode::kTimeout, ErrorCode::kDenied}) {
        EXPECT_EQ(ExitStatus(code), 1);
    }
    EXPECT_EQ(ExitStatus(ErrorCode::kCancelled), 130);
}

}  // namespace
}  // namespace weft
