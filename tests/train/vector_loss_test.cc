#include "train/vector_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace weft::train {
namespace {

std::vector<float> Random(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

// The loss is float64 of float32 values: a central difference over 2 h has an error of about h^2
// and 2^-24 / h, 1e-5 each.
constexpr float kStep = 4e-3f;
constexpr double kTolerance = 2e-4;

template <typename Loss>
void ExpectDerivative(std::vector<float> at, std::span<const float> slopes, const Loss& loss) {
    for (size_t i = 0; i < at.size(); ++i) {
        const float value = at[i];
        at[i] = value + kStep;
        const double above = loss(at);
        at[i] = value - kStep;
        const double below = loss(at);
        at[i] = value;
        const double slope = (above - below) / (2 * double{kStep});
        EXPECT_TRUE(std::abs(slope - double{slopes[i]}) <= kTolerance)
            << i << ": " << slopes[i] << ", not " << slope;
    }
}

TEST(VectorLoss, DerivativesOfScores) {
    for (const auto& [kind, width] :
         {std::pair{LossKind::kReward, 2}, std::pair{LossKind::kClassification, 5}}) {
        VectorOptions options;
        options.loss = kind;
        options.center_rewards = 0.3;
        Sequence first, second;
        first.label = 2;
        second.label = 0;
        const std::vector<const Sequence*> records = {&first, &second};
        const std::vector<float> scores = Random(2 * static_cast<size_t>(width), 3);
        std::vector<float> slopes(scores.size());
        const auto loss = [&, kind = kind](const std::vector<float>& at) {
            VectorSums sums;
            std::vector<float> ignored(at.size());
            AddScores(options, records, 3, at, ignored, sums);
            return sums[VectorSums::kLoss];
        };
        VectorSums sums;
        AddScores(options, records, 3, scores, slopes, sums);
        ExpectDerivative(scores, slopes, loss);
    }
}

TEST(VectorLoss, DerivativesOfJoinedVectors) {
    VectorOptions options;
    options.loss = LossKind::kContrastive;
    options.scale = 4;
    constexpr size_t kTexts = 3, kColumns = 11, kRecords = 4, kPlaces = 6;
    std::vector<float> vectors = Random(kPlaces * kTexts * kColumns, 5);
    const auto run = [&](const std::vector<float>& at, size_t first, size_t count,
                         std::vector<float>& slopes) {
        slopes.assign(count * kTexts * kColumns, 9.0f);
        return JoinVectors(options, {at, kTexts, kColumns, kRecords, first, count}, 2, slopes);
    };
    std::vector<float> all, own;
    run(vectors, 0, kPlaces, all);
    const auto loss = [&](const std::vector<float>& at) {
        std::vector<float> ignored;
        return run(at, 0, 0, ignored)[VectorSums::kLoss];
    };
    // (Places after the records are empty.)
    ExpectDerivative(vectors, all, loss);
    // Each replica gets the derivatives by its own records.
    for (const size_t first : {0, 2, 4}) {
        run(vectors, first, 2, own);
        const auto part = std::span(all).subspan(first * kTexts * kColumns, own.size());
        EXPECT_TRUE(std::ranges::equal(part, own)) << first;
    }
}

// 2^28 cosines of anchors and candidates at most, before a model is loaded.
TEST(VectorLoss, BatchesOfTooManyPairsAreRefused) {
    VectorOptions joins;
    joins.loss = LossKind::kContrastive;
    joins.texts = 3;
    EXPECT_TRUE(CheckVectorBatch(joins, 11'585).ok());
    EXPECT_NE(CheckVectorBatch(joins, 11'586).error().message.find("Use a smaller --micro-batch"),
              std::string::npos);
    EXPECT_TRUE(CheckVectorBatch(joins, 0).ok());
    EXPECT_TRUE(CheckVectorBatch(VectorOptions(), 1 << 20).ok());
}

TEST(VectorLoss, PoolingAndItsDerivative) {
    const std::vector<float> rows = {1, 2, 3, 5, 8, 5};
    std::vector<float> vector(2), back(6);
    Pool(rows, 2, vector);
    EXPECT_EQ(vector, (std::vector<float>{4, 4}));
    Unpool(std::vector<float>{3, 6}, back);
    EXPECT_EQ(back, (std::vector<float>{1, 2, 1, 2, 1, 2}));
}

}  // namespace
}  // namespace weft::train
