// SumInOrder: the stated order of additions, also if `out` is one of the addends.
#include "coll/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace weft::coll {
namespace {

TEST(Sum, AddsInTheGivenOrderAlsoInPlace) {
    std::mt19937 random(11);
    for (int round = 0; round < 300; round++) {
        const size_t ranks = 1 + random() % 8;
        const size_t count = random() % 2000;
        std::vector<std::vector<float>> addends(ranks, std::vector<float>(count));
        for (auto& addend : addends) {
            for (float& value : addend) {
                value = std::ldexp(static_cast<float>(random() % 4001) - 2000.0f,
                                   static_cast<int>(random() % 40) - 20);
            }
        }
        std::vector<float> expected = addends[0];
        for (size_t r = 1; r < ranks; r++) {
            for (size_t i = 0; i < count; i++) expected[i] += addends[r][i];
        }
        std::vector<const std::byte*> pointers;
        for (auto& addend : addends) pointers.push_back(std::as_bytes(std::span(addend)).data());
        std::vector<float>& out = addends[random() % ranks];
        SumInOrder(pointers, out.data(), count);
        EXPECT_TRUE(out == expected) << ranks << " addends of " << count;
    }
}

}  // namespace
}  // namespace weft::coll
