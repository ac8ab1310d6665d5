// Seconds of collectives, against figures worked out by hand.
#include "coll/seconds.h"

#include <gtest/gtest.h>

namespace weft::coll {
namespace {

constexpr double kUs = 1e-6, kMillion = 1e6;
constexpr Tier kNear{10e9, 1e-6, 0}, kFar{1e9, 10e-6, 0};

void ExpectUs(double seconds, double us) {
    EXPECT_NEAR(seconds / kUs, us, 1e-6 * us);
}

TEST(Seconds, OneHost) {
    const TierGroup four{4, 1, kNear, kFar};
    ExpectUs(AllReduceSeconds(four, Algorithm::kOneShot, kMillion), 1 + 300);
    ExpectUs(AllReduceSeconds(four, Algorithm::kTwoShot, kMillion), 2 * (1 + 75));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRing, kMillion), 6 * (1 + 25));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRecursiveDoubling, kMillion), 2 * (1 + 100));
    ExpectUs(AllGatherSeconds(four, kMillion), 1 + 75);
    ExpectUs(ReduceScatterSeconds(four, kMillion), 1 + 75);
    ExpectUs(AllToAllSeconds(four, kMillion), 1 + 75);
    ExpectUs(MessageSeconds(kFar, kMillion), 10 + 1000);
}

// The third rank gives to the first, and gets from it.
TEST(Seconds, RanksBeyondAPowerOfTwo) {
    const TierGroup three{3, 1, kNear, kFar};
    ExpectUs(AllReduceSeconds(three, Algorithm::kRecursiveDoubling, kMillion), 3 * (1 + 100));
}

TEST(Seconds, MessagesCostTheSender) {
    const TierGroup four{4, 1, {10e9, 1e-6, 2e-6}, kFar};
    ExpectUs(AllReduceSeconds(four, Algorithm::kOneShot, kMillion), 1 + 3 * 2 + 300);
    ExpectUs(AllReduceSeconds(four, Algorithm::kRing, kMillion), 6 * (1 + 2 + 25));
}

// Two hosts of two ranks: flat, each host's link carries four vectors one way; by leaders, one.
TEST(Seconds, HostsShareTheirLink) {
    const TierGroup four{4, 2, kNear, kFar};
    ExpectUs(AllReduceSeconds(four, Algorithm::kOneShot, kMillion), 10 + 4000);
    ExpectUs(AllReduceSeconds(four, Algorithm::kTwoShot, kMillion), 2 * (10 + 1000));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRing, kMillion), 6 * (10 + 250));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRecursiveDoubling, kMillion),
             (1 + 100) + (10 + 2000));
    ExpectUs(AllReduceSeconds(four, Algorithm::kHierarchical, kMillion),
             2 * (1 + 100) + (10 + 1000));
    ExpectUs(AllGatherSeconds(four, kMillion), 10 + 1000);
}

TEST(Seconds, AutoIsWhatRuns) {
    const TierGroup hosts{4, 2, kNear, kFar}, one{4, 1, kNear, kFar};
    EXPECT_EQ(AllReduceSeconds(hosts, Algorithm::kAuto, kMillion),
              AllReduceSeconds(hosts, Algorithm::kHierarchical, kMillion));
    EXPECT_EQ(AllReduceSeconds(one, Algorithm::kAuto, 64),
              AllReduceSeconds(one, Algorithm::kOneShot, 64));
    EXPECT_EQ(AllReduceSeconds(one, Algorithm::kAuto, kMillion),
              AllReduceSeconds(one, Algorithm::kTwoShot, kMillion));
    EXPECT_EQ(AllReduceSeconds({1, 1, kNear, kFar}, Algorithm::kAuto, kMillion), 0);
}

}  // namespace
}  // namespace weft::coll
