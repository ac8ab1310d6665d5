#include "engine/sampling/weigh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace weft::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Weights, AreExponentials) {
    std::vector<float> logits = {5, 5, -kInf, -82.9f, -83.1f, -1e30f};
    for (int i = 0; i < 30'000; ++i) logits.push_back(5 - static_cast<float>(i) * 3e-3f);
    for (const float scale : {1.0f, 0.01f, 2.5f}) {
        Weights weights;
        weights.Set(logits, 5, scale);
        double total = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
            const float x = scale * (logits[i] - 5);
            const double exact = std::exp(double{x});
            if (x < -88) {
                EXPECT_EQ(weights.all()[i], 0) << x;
            } else if (x > -87) {
                EXPECT_LE(std::abs(weights.all()[i] / exact - 1), 3e-7) << x;
            }
            total += exact;
        }
        EXPECT_LE(std::abs(weights.total() / total - 1), 1e-7);
    }
}

// Each token has the share of [0, 1) that its weight has of the total.
TEST(Weights, FindDividesTheTotal) {
    std::mt19937 random(3);
    std::vector<float> logits(2000, -kInf);
    for (size_t i = 0; i < logits.size(); ++i) {
        const bool in_empty_block = i / 256 == 2 || i / 256 == 7;
        if (!in_empty_block && random() % 3 != 0) logits[i] = std::ldexp(1.0f, -int(random() % 5));
    }
    Weights weights;
    weights.Set(logits, 1, 1);
    double sum = 0;
    size_t last = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        const double weight = weights.all()[i];
        if (weight == 0) continue;
        EXPECT_EQ(weights.Find((sum + 0.001 * weight) / weights.total()), i);
        EXPECT_EQ(weights.Find((sum + 0.999 * weight) / weights.total()), i);
        sum += weight;
        last = i;
    }
    EXPECT_EQ(weights.Find(0),
              std::ranges::find_if(logits, [](float l) { return l > -kInf; }) - logits.begin());
    EXPECT_EQ(weights.Find(1), last) << "as after rounding";
}

// The definition: sort, then add until the share is reached. Equal values stay by index.
std::vector<bool> Kept(const std::vector<float>& values, double share) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>{}, [&](size_t i) { return values[i]; });
    double total = 0, sum = 0;
    for (const float value : values) total += std::exp(double{value});
    std::vector<bool> kept(values.size());
    for (const size_t i : order) {
        if (sum >= share * total && sum > 0) break;
        kept[i] = true;
        sum += std::exp(double{values[i]});
    }
    return kept;
}

TEST(TopPCut, KeepsTheLikeliest) {
    std::mt19937 random(4);
    for (int round = 0; round < 300; ++round) {
        std::normal_distribution<float> normal(0, round % 3 == 0 ? 8.0f : 1.0f);
        std::vector<float> values(1 + random() % (round % 10 == 0 ? 30'000 : 200));
        const bool equal = round % 4 == 0;
        for (float& value : values) {
            value = equal ? static_cast<float>(random() % 5) : normal(random);
            if (random() % 20 == 0) value = -kInf;
        }
        values[0] = round % 2 == 0 ? 1.0f : 30.0f;  // 30: more than all others together
        const double share = static_cast<double>(1 + random() % 998) / 1000;
        Weights weights;
        weights.Set(values, *std::ranges::max_element(values), 1);
        TopPCut cut;
        cut.Set(values, weights, share);
        std::vector<uint32_t> found;
        FindAtLeast(values, cut.least(), found);
        std::vector<bool> kept(values.size());
        for (const uint32_t i : found) kept[i] = cut.Keeps(values[i]);
        const std::vector<bool> exact = Kept(values, share);
        int64_t different = 0;
        for (size_t i = 0; i < kept.size(); ++i) different += kept[i] != exact[i] ? 1 : 0;
        // Float32 weights may shift the cut by one of very many tokens.
        EXPECT_LE(different, values.size() > 10'000 ? 1 : 0) << round << " " << share;
        EXPECT_TRUE(std::ranges::count(kept, true) > 0);
    }
}

TEST(FindAtLeast, FindsAllInOrder) {
    std::mt19937 random(5);
    for (const size_t size : {0u, 1u, 31u, 32u, 33u, 1000u}) {
        std::vector<float> values(size);
        for (float& value : values) value = static_cast<float>(random() % 100);
        std::vector<uint32_t> found, exact;
        FindAtLeast(values, 90, found);
        for (size_t i = 0; i < size; ++i) {
            if (values[i] >= 90) exact.push_back(static_cast<uint32_t>(i));
        }
        EXPECT_EQ(found, exact);
    }
}

}  // namespace
}  // namespace weft::engine
