// Algorithms for unmeasured sizes: the links are derived from the measurements, and the choice is
// the fastest algorithm over them by the model.
#include "coll/choose.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::coll {
namespace {

std::vector<TuningRow> RowsOver(const TierGroup& group, std::initializer_list<size_t> sizes,
                                double noise = 0) {
    const Tuning built_in = Tuning::BuiltIn({group.ranks, 1, false});
    std::vector<TuningRow> rows;
    double sign = 1;
    for (const size_t bytes : sizes) {
        const Choice choice = built_in.For(Collective::kAllReduce, bytes);
        const double seconds =
            AllReduceSeconds(group, choice.algorithm, static_cast<double>(bytes));
        rows.push_back({bytes, choice, seconds * 1e6 * (1 + sign * noise)});
        sign = -sign;
    }
    return rows;
}

TEST(Choose, LinksAreFoundByWhatWasMeasured) {
    for (const int ranks : {2, 3, 5, 8}) {
        for (const Tier tier : {Tier{12e9, 0.35e-6, 0}, Tier{1.2e9, 25e-6, 0}}) {
            const TierGroup group{ranks, 1, tier, tier};
            const auto exact = FitTier(ranks, RowsOver(group, {256, 1024, 8192, 65536}));
            ASSERT_TRUE(exact.has_value()) << ranks;
            EXPECT_NEAR(exact->latency_s / tier.latency_s, 1, 1e-6);
            EXPECT_NEAR(exact->bytes_per_s / tier.bytes_per_s, 1, 1e-6);
            const auto rough = FitTier(ranks, RowsOver(group, {256, 8192, 65536, 1 << 20}, 0.1));
            ASSERT_TRUE(rough.has_value()) << ranks;
            EXPECT_NEAR(std::log(rough->latency_s / tier.latency_s), 0, 0.4) << ranks;
            EXPECT_NEAR(std::log(rough->bytes_per_s / tier.bytes_per_s), 0, 0.4) << ranks;
        }
    }
}

TEST(Choose, TooFewMeasurementsDecideNothing) {
    const TierGroup group{4, 1, {1e9, 1e-6, 0}, {1e9, 1e-6, 0}};
    EXPECT_FALSE(FitTier(4, {}));
    EXPECT_FALSE(FitTier(4, RowsOver(group, {8192})));
    EXPECT_FALSE(FitTier(4, RowsOver(group, {8192, 8192})));
    std::vector<TuningRow> untimed = RowsOver(group, {1024, 65536});
    for (TuningRow& row : untimed) row.p50_us = 0;
    EXPECT_FALSE(FitTier(4, untimed));
    // If larger vectors take less time, no bandwidth can be derived.
    std::vector<TuningRow> odd = RowsOver(group, {1024, 65536});
    odd[1].p50_us = odd[0].p50_us / 100;
    EXPECT_FALSE(FitTier(4, odd));
}

// The latency of a link decides: over a slow one few messages, over a fast one few bytes.
TEST(Choose, TheFastestOverTheseLinks) {
    const std::vector<Algorithm> candidates = AlgorithmsFor(4, false);
    const auto at = [&](const Tier& tier, double bytes) {
        return FastestAllReduce({4, 1, tier, tier}, candidates, bytes);
    };
    EXPECT_EQ(at({1e9, 1e-3, 0}, 65536), Algorithm::kOneShot);
    EXPECT_EQ(at({1e9, 1e-7, 0}, 65536), Algorithm::kTwoShot);
    for (const double bytes : {256.0, 65536.0, 1e8}) {
        const Tier tier{1.2e9, 25e-6, 0};
        const TierGroup group{4, 1, tier, tier};
        const Algorithm chosen = FastestAllReduce(group, candidates, bytes);
        for (const Algorithm other : candidates) {
            EXPECT_LE(AllReduceSeconds(group, chosen, bytes),
                      AllReduceSeconds(group, other, bytes));
        }
    }
}

}  // namespace
}  // namespace weft::coll
