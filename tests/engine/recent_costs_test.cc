#include "engine/rank/recent_costs.h"

#include <gtest/gtest.h>

namespace weft::engine {
namespace {

TEST(RecentCosts, QuantilesAreOfTheLastCosts) {
    RecentCosts costs;
    EXPECT_TRUE(costs.Quantiles(3).empty());
    costs.Add(7.26F);
    EXPECT_EQ(costs.Quantiles(3), std::vector<double>{7.3});
    for (const float cost : {3.0F, 1.0F, 2.0F}) costs.Add(cost);
    EXPECT_EQ(costs.Quantiles(2), (std::vector<double>{1, 7.3}));
    EXPECT_EQ(costs.Quantiles(9), (std::vector<double>{1, 2, 3, 7.3}));
    for (size_t i = 0; i < 3 * RecentCosts::kMost; ++i) costs.Add(5);
    for (size_t i = 0; i < RecentCosts::kMost / 2; ++i) costs.Add(9);
    EXPECT_EQ(costs.all().size(), RecentCosts::kMost);
    EXPECT_EQ(costs.Quantiles(4), (std::vector<double>{5, 5, 9, 9}));
}

}  // namespace
}  // namespace weft::engine
