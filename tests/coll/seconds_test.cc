// Seconds of collectives, against figures computed by hand.
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

// Two hosts of two ranks: flat, a host's link carries four vectors in each direction; with leaders,
// one.
TEST(Seconds, HostsShareTheirLink) {
    const TierGroup four{4, 2, kNear, kFar};
    ExpectUs(AllReduceSeconds(four, Algorithm::kOneShot, kMillion), 10 + 4000);
    ExpectUs(AllReduceSeconds(four, Algorithm::kTwoShot, kMillion), 2 * (10 + 1000));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRing, kMillion), 6 * (10 + 250));
    ExpectUs(AllReduceSeconds(four, Algorithm::kRecursiveDoubling, kMillion),
             (1 + 100) + (10 + 2000));
    ExpectUs(AllReduceSeconds(four, Algorithm::kHierarchical, kMillion),
             2 * (1 + 100) + (10 + 1000));
    ExpectUs(AllGatherSeconds(four, kMillion, Algorithm::kOneShot), 10 + 1000);
    ExpectUs(ReduceScatterSeconds(four, kMillion, Algorithm::kOneShot), 10 + 1000);
}

// A part crosses once to each other host; the last one is then passed on within the host. If
// passing on takes longer, the first crossing and all passing on count.
TEST(Seconds, GathersFromHostToHost) {
    ExpectUs(AllGatherSeconds({4, 2, kNear, kFar}, kMillion), 10 + 500 + (1 + 25));
    ExpectUs(AllGatherSeconds({8, 4, kNear, kFar}, kMillion), 10 + 3 * 250 + (1 + 12.5));
    const Tier slow{0.1e9, 1e-6, 0};
    ExpectUs(AllGatherSeconds({8, 4, slow, kFar}, kMillion), 10 + 250 + 3 * (1 + 1250));
    ExpectUs(AllGatherSeconds({8, 4, kNear, {1e9, 10e-6, 2e-6}}, kMillion),
             10 + 3 * (2 + 250) + (1 + 12.5));
}

// Each of two hosts sends 7 of 8 half sums: 4 of its own parts, and 3 that cross twice.
TEST(Seconds, SumsFromHostToHost) {
    const TierGroup eight{8, 2, kNear, kFar}, four{4, 2, kNear, kFar};
    ExpectUs(ReduceScatterSeconds(eight, kMillion), 2 * 10 + 875);
    ExpectUs(ReduceScatterSeconds(eight, kMillion, Algorithm::kOneShot), 10 + 2000);
    ExpectUs(ReduceScatterSeconds(four, kMillion), 2 * 10 + 750);
    // A sum of float32 is as long as two values of BF16.
    ExpectUs(ReduceScatterSeconds(eight, kMillion, Algorithm::kAuto, 2), 2 * 10 + 1500);
    ExpectUs(ReduceScatterSeconds(four, kMillion, Algorithm::kAuto, 2), 10 + 1000);
    // Few bytes are sent directly, without waiting for one host after the other.
    ExpectUs(ReduceScatterSeconds(eight, 800), 10 + 1.6);
    ExpectUs(ReduceScatterSeconds({16, 4, kNear, kFar}, kMillion),
             4 * 10 + (1.25 - 1.0 / 16) * 1000 + 2 * 62.5);
    ExpectUs(ReduceScatterSeconds({8, 2, {0.1e9, 1e-6, 0}, kFar}, kMillion), 2 * 10 + 1 + 7500);
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
    // For any number of hosts, a vector crosses a host's link at most twice, beside time within it.
    for (int count = 2; count <= 256; count *= 2) {
        const double least = 1e9 / kFar.bytes_per_s;
        const double seconds =
            AllReduceSeconds({8 * count, count, kNear, kFar}, Algorithm::kAuto, 1e9);
        EXPECT_GT(seconds, least) << count;
        EXPECT_LT(seconds, 2.5 * least) << count;
    }
}

}  // namespace
}  // namespace weft::coll
