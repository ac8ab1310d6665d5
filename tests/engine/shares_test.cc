// Shares by measured speed: from speeds and memory; and that a device's speed is measured.
#include "engine/rank/shares.h"

#include <gtest/gtest.h>

#include "backend/device.h"
#include "engine/rank/shard_ranges.h"

namespace weft::engine {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::vector<double> SharesOf(int tp, int pp, const std::vector<RankSpeed>& ranks,
                             uint64_t model_bytes = 0) {
    model::Layout layout;
    layout.tp = tp;
    layout.pp = pp;
    return SharesBySpeed(ranks, layout, model_bytes);
}

using Shares = std::vector<double>;

TEST(SharesBySpeed, GoByWhatIsReadASecond) {
    EXPECT_EQ(SharesOf(3, 1, {{200e9}, {100e9}, {100e9}}), (Shares{50, 25, 25}));
    EXPECT_EQ(SharesOf(1, 2, {{30e9}, {90e9}}), (Shares{25, 75}));
    // Too slow for one percent.
    EXPECT_EQ(SharesOf(1, 2, {{1e9}, {900e9}}), (Shares{1, 100}));
}

TEST(SharesBySpeed, AreEvenWhereNoneIsATenthFaster) {
    EXPECT_EQ(SharesOf(2, 1, {{100e9}, {109e9}}), Shares());
    EXPECT_NE(SharesOf(2, 1, {{100e9}, {120e9}}), Shares());
    EXPECT_EQ(SharesOf(1, 1, {{100e9}}), Shares());
    EXPECT_EQ(SharesOf(2, 1, {{0}, {100e9}}), Shares());  // not measured
}

TEST(SharesBySpeed, NoRankGetsMoreThanFits) {
    // The card would get 36 of 40 GiB; three quarters of its 16 GiB hold 12.
    EXPECT_EQ(SharesOf(1, 2, {{450e9, 16 * kGiB}, {50e9, 64 * kGiB}}, 40 * kGiB), (Shares{30, 70}));
    // The third rank gets what two can't hold, also if the first two are equally fast.
    EXPECT_EQ(SharesOf(1, 3, {{9e9, 8 * kGiB}, {9e9, 8 * kGiB}, {9e9, 64 * kGiB}}, 30 * kGiB),
              (Shares{20, 20, 60}));
    // If all memory is too small, shares follow memory, and the start fails with the sum.
    EXPECT_EQ(SharesOf(1, 2, {{90e9, 8 * kGiB}, {10e9, 16 * kGiB}}, 100 * kGiB), (Shares{6, 12}));
}

TEST(SharesBySpeed, AStageIsAsFastAsItsSlowestRank) {
    EXPECT_EQ(SharesOf(2, 2, {{100e9}, {50e9}, {150e9}, {200e9}}), (Shares{1, 1, 25, 75}));
}

// Includes types made at load time, which no file has.
TEST(MeasureSpeed, OfTheTypeThatMostWeightsHave) {
    for (const DType type : {DType::kF32, DType::kQ4_K, DType::kW4, DType::kW8, DType::kNVFP4}) {
        EXPECT_EQ(MeasuredType(Info(type).name), type);
    }
}

TEST(MeasureSpeed, OfTheProcessor) {
    for (const DType type : {DType::kF16, DType::kQ4_K, DType::kW4, DType::kNVFP4}) {
        const auto device = backend::OpenDevice("cpu", {});
        ASSERT_TRUE(device.ok()) << device.error().message;
        int ready = 0;
        const auto mark = [&] {
            ++ready;
            return Status();
        };
        const auto speed = MeasureSpeed(**device, type, {.ready = mark});
        ASSERT_TRUE(speed.ok()) << speed.error().message;
        EXPECT_EQ(ready, 1);
        // Real memory is slower than 100 TB/s and faster than 1 MB/s.
        EXPECT_GT(speed->bytes_per_s, 1e6);
        EXPECT_LT(speed->bytes_per_s, 1e14);
        EXPECT_GT(speed->space_bytes, 0u);
    }
    const auto device = backend::OpenDevice("cpu", {});
    const auto stop = [] { return Status(MakeError(ErrorCode::kCancelled, "stopped")); };
    const auto stopped = MeasureSpeed(**device, DType::kQ8_0, {.ready = stop});
    EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

// Pieces of any size, as of small and large models: more calls than there are matrices.
TEST(MeasureSpeed, ComputesInPieces) {
    for (const double bytes : {1.0, 3e6, 40e6, 1e9}) {
        const auto device = backend::OpenDevice("cpu", {});
        int computed = 0;
        const auto then = [&](const std::function<Status()>& compute_piece) -> Status {
            for (; computed < (bytes > 1e7 ? 4 : 100); ++computed) WEFT_TRY(compute_piece());
            return MakeError(ErrorCode::kCancelled, "stopped");
        };
        const auto stopped =
            MeasureSpeed(**device, DType::kQ4_K,
                         {.ready = [] { return Status(); }, .piece_bytes = bytes, .then = then});
        ASSERT_FALSE(stopped.ok());
        EXPECT_EQ(stopped.error().message, "stopped") << bytes;
        EXPECT_GE(computed, 4);
    }
}

// As many ranks as a job may have.
TEST(ShardOf, IsOneOfUpTo4096Ranks) {
    EXPECT_EQ(ParseShard("4095/4096")->ranks, 4096);
    EXPECT_EQ(ParseShard("0/4097").error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace weft::engine
