#include "backend/top.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft::backend {
namespace {

std::vector<Candidate> Top(const std::vector<float>& values, size_t count) {
    std::vector<Candidate> out(count);
    TopK(values, out);
    return out;
}

TEST(TopK, IsTheHeadOfTheSortedValues) {
    std::mt19937 random(5);
    for (const size_t size : {1u, 2u, 15u, 16u, 17u, 100u, 1000u}) {
        std::vector<float> values(size);
        // Few distinct values, so that some are equal.
        for (float& value : values) value = static_cast<float>(random() % 40) - 20;
        std::vector<int32_t> order(size);
        for (size_t i = 0; i < size; ++i) order[i] = static_cast<int32_t>(i);
        std::ranges::stable_sort(order, std::greater<>{},
                                 [&](int32_t i) { return values[static_cast<size_t>(i)]; });
        for (const size_t count : {size_t{1}, size / 2, size}) {
            if (count == 0) continue;
            const std::vector<Candidate> top = Top(values, count);
            for (size_t i = 0; i < count; ++i) {
                EXPECT_EQ(top[i].index, order[i]) << size << " " << count << " " << i;
                EXPECT_EQ(top[i].value, values[static_cast<size_t>(order[i])]);
            }
        }
    }
}

TEST(TopK, SaysWhereNumbersAreNotFinite) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = INFINITY;
    for (const size_t count : {1u, 2u}) {
        for (const std::vector<float>& values :
             {std::vector<float>{kNan, 1}, {1, kNan}, {kInf, kNan, 2}, {-kInf, kNan}}) {
            EXPECT_TRUE(std::isnan(Top(values, count)[0].value));
        }
        EXPECT_EQ(Top({1, kInf, 2}, count)[0].value, kInf);
        EXPECT_EQ(Top({-kInf, -kInf, -kInf}, count)[0].index, 0);
    }
}

}  // namespace
}  // namespace weft::backend
