// The loss of rows on a GPU, split over ranks or not, its gradient, and the search for numbers that
// are not finite, against float64.
//
// Bounds: u = 2^-24. The error of exp(x) is (3 + 2 |x|) 2u of its result, and that of x - most is u
// of its result, so a term exp(-d) of the sum is off by (6 + 5 d) u exp(-d). The sum of the terms
// is off by 6 + 5 E(d) of itself, where E(d), the mean under softmax, is at most log(V), like the
// entropy. Each addition of positive numbers rounds once.
#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;

struct LossCase {
    int32_t rows;
    int64_t vocabulary, skip;
    std::vector<int64_t> parts;  // vocabulary columns of each rank
    float deviation;
    DType dtype = DType::kF32;
    float smoothing = 0, z_loss = 0;
    LossTerms terms() const { return {smoothing, z_loss, vocabulary}; }
};
const LossCase kLosses[] = {
    {1, 1, 0, {1}, 1},
    {7, 256, 0, {256}, 3},
    {9, 1031, 0, {1031}, 10},
    {33, 515, 1, {100, 400, 15}, 3},
    {5, 4096, 0, {2048, 2048}, 30, DType::kBF16},
    {3, 152064, 0, {152064}, 2},
    {9, 1031, 0, {1031}, 3, DType::kF32, 0.1f},
    {33, 515, 1, {100, 400, 15}, 3, DType::kF32, 0.3f, 0.01f},
    {5, 4096, 0, {2048, 2048}, 3, DType::kBF16, 0, 0.05f},
};

// All results in float64, and the error bounds of float32.
struct Losses {
    Losses(const LossCase& c, const std::vector<float>& logits, const std::vector<int32_t>& targets)
        : all(static_cast<size_t>(c.rows)),
          error(all.size()),
          hits(all.size()),
          factor(all.size(), 1.0) {
        const auto cols = static_cast<size_t>(c.vocabulary);
        for (size_t row = 0; row < all.size(); ++row) {
            const float* x = logits.data() + row * cols;
            const double most = *std::max_element(x, x + cols);
            double sum = 0;
            for (size_t i = 0; i < cols; ++i) sum += std::exp(double{x[i]} - most);
            for (size_t i = 0; i < cols; ++i) {
                p.push_back(std::exp(double{x[i]} - most) / sum);
                p_error.push_back((6 + 5 * std::fabs(double{x[i]} - most)) * kUlp * p.back());
            }
            // An invocation adds at most V / 256 + 4 elements, then at most 256 partial sums are
            // added.
            const auto count = static_cast<double>(c.vocabulary);
            relative = (count / 256 + 260 + 6 + 5 * std::log(count)) * kUlp;
            const int32_t target = targets[row];
            if (target < 0) continue;
            const double chosen = x[target], log_sum = std::log(sum) + most;
            double plain = 0, sizes = 0;
            for (size_t i = 0; i < cols; ++i) {
                plain += double{x[i]};
                sizes += std::fabs(double{x[i]});
            }
            const LossTerms terms = c.terms();
            const double z = double{terms.z_loss} * log_sum * log_sum;
            all[row] = log_sum - chosen + double{terms.smoothing} * chosen -
                       double{terms.share()} * plain + z;
            error[row] =
                relative +
                4 * kUlp * (std::log(sum) + std::fabs(most - chosen) + std::fabs(all[row])) +
                2 * relative *
                    (double{terms.share()} * sizes + z +
                     std::fabs(log_sum) * 2 * double{terms.z_loss}) +
                4 * kUlp * std::fabs(chosen);
            hits[row] = chosen == most ? 1 : 0;
            factor[row] += 2 * double{terms.z_loss} * log_sum;
        }
    }
    Doubles all, error, p, p_error, hits, factor;
    double relative = 0;
};

// The statistics of all ranks, whose parts of the logits are separate values, and the losses.
struct LossOfRanks {
    LossOfRanks(TrainEmitter& emitter, const LossCase& of, const std::vector<float>& logits,
                const std::vector<int32_t>& wanted)
        : e(emitter), c(of) {
        const auto ranks = static_cast<int64_t>(c.parts.size());
        targets = e.AddInts({kOutputs}, wanted);
        stats = e.Place({kOutputs, c.terms().stats() * ranks}, DType::kF32);
        losses = e.Place({kOutputs}, DType::kF32);
        hits = e.Place({kOutputs}, DType::kF32);
        int64_t begin = 0;
        for (const int64_t part : c.parts) {
            std::vector<float> own;
            for (int64_t row = 0; row < c.rows; ++row) {
                const auto at = logits.begin() + row * c.vocabulary + begin;
                own.insert(own.end(), at, at + part);
            }
            parts.push_back(e.Place({kOutputs, part}, c.dtype, own));
            first_rows.push_back(begin);
            begin += part;
        }
    }
    Status Stats() {
        const auto each = static_cast<size_t>(c.terms().stats());
        std::vector<float> all(static_cast<size_t>(c.rows) * each * parts.size());
        for (size_t r = 0; r < parts.size(); ++r) {
            const ValueId own = e.Place({kOutputs, c.terms().stats()}, DType::kF32);
            WEFT_TRY(
                e.Do(program::SoftmaxStats{first_rows[r], each > 3}, {parts[r], targets}, {own}));
            const auto got = e.Read(own);
            for (size_t i = 0; i < got.size(); ++i) {
                all[(i / each * parts.size() + r) * each + i % each] = got[i];
            }
        }
        stats = e.Place({kOutputs, static_cast<int64_t>(each * parts.size())}, DType::kF32, all);
        return e.Do(program::CrossEntropy{c.terms()}, {stats, targets}, {losses, hits});
    }
    Status Gradients(const std::vector<float>& dloss) {
        const ValueId slope = e.Place({kOutputs}, DType::kF32, dloss);
        for (size_t r = 0; r < parts.size(); ++r) {
            WEFT_TRY(e.Do(program::CrossEntropyGrad{first_rows[r], c.terms()},
                          {slope, stats, targets, parts[r]}, {parts[r]}));
        }
        return {};
    }
    TrainEmitter& e;
    const LossCase& c;
    ValueId targets = 0, stats = 0, losses = 0, hits = 0;
    std::vector<ValueId> parts;
    std::vector<int64_t> first_rows;
};

std::vector<int32_t> RandomTargets(const LossCase& c, Random& random) {
    std::vector<int32_t> targets;
    for (int32_t row = 0; row < c.rows; ++row) {
        const bool none = row % 4 == 2;
        targets.push_back(none ? -1 : static_cast<int32_t>(random.Int(0, c.vocabulary - 1)));
    }
    return targets;
}

TEST(VulkanLoss, RowsSplitOverRanks) {
    WEFT_VULKAN(device);
    Random random(21);
    for (const LossCase& c : kLosses) {
        const auto logits = RoundedTo(c.dtype, random.Normals(c.rows * c.vocabulary, c.deviation));
        const auto targets = RandomTargets(c, random);
        const std::string text = fmt::format("{} rows of {}", c.rows, c.vocabulary);
        TrainEmitter e(device, TrainShape(1, c.rows), c.skip);
        LossOfRanks ranks(e, c, logits, targets);
        EXPECT_DONE(ranks.Stats());
        const Losses right(c, logits, targets);
        const auto losses = e.Read(ranks.losses);
        ExpectNear(
            losses, right.all, DType::kF32, [&](size_t i) { return right.error[i]; }, text);
        const auto hits = e.Read(ranks.hits);
        EXPECT_EQ(Doubles(hits.begin(), hits.end()), right.hits) << text;
        const std::vector<float> dloss = random.Normals(c.rows);
        EXPECT_DONE(ranks.Gradients(dloss));
        for (size_t r = 0; r < ranks.parts.size(); ++r) {
            const auto got = e.Read(ranks.parts[r]);
            const auto cols = static_cast<size_t>(c.parts[r]);
            Doubles expected, error;
            for (size_t i = 0; i < got.size(); ++i) {
                const size_t row = i / cols;
                const auto column = static_cast<size_t>(ranks.first_rows[r]) + i % cols;
                const size_t at = row * static_cast<size_t>(c.vocabulary) + column;
                const bool hit = targets[row] == static_cast<int32_t>(column);
                const bool counts = targets[row] >= 0;
                const LossTerms terms = c.terms();
                const double factor = right.factor[row];
                const double chosen = hit ? 1 - double{terms.smoothing} : 0;
                const double share = terms.share();
                const double p = counts ? right.p[at] * factor - chosen - share : 0;
                const double slope = dloss[row];
                expected.push_back(slope * p);
                const double of_p =
                    std::abs(factor) * (2 * right.p_error[at] + 4 * right.relative * right.p[at]) +
                    2 * kUlp * share;
                error.push_back(counts ? std::abs(slope) * (of_p + (hit ? 2 * kUlp : 0)) : 0);
            }
            ExpectNear(
                got, expected, c.dtype, [&](size_t i) { return error[i] + 0x1p-126; },
                "gradient, " + text);
        }
    }
}

// A row whose target has a probability close to 1: the logarithm near 1 must be accurate.
TEST(VulkanLoss, RowsWithProbabilityNearOne) {
    WEFT_VULKAN(device);
    const LossCase c = {3, 8, 0, {8}, 0};
    std::vector<float> logits(24, -11.0f);
    logits[2] = 0;
    logits[8 + 5] = 3;
    logits[16] = 30;
    const std::vector<int32_t> targets = {2, 5, 0};
    TrainEmitter e(device, TrainShape(1, 3));
    LossOfRanks ranks(e, c, logits, targets);
    EXPECT_DONE(ranks.Stats());
    Doubles expected;
    for (const double apart : {11.0, 14.0, 41.0}) {
        expected.push_back(std::log1p(7 * std::exp(-apart)));
    }
    ExpectNear(
        e.Read(ranks.losses), expected, DType::kF32, [](size_t) { return 10 * kUlp; }, "sure");
}

TEST(VulkanLoss, NonFiniteRows) {
    WEFT_VULKAN(device);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    const LossCase c = {4, 5, 0, {5}, 0};
    const std::vector<float> logits = {1, nan,       2, 3, 4, 1,   2,   infinity, 3,   4,
                                       1, -infinity, 2, 3, 4, nan, nan, nan,      nan, nan};
    TrainEmitter e(device, TrainShape(1, 4));
    LossOfRanks ranks(e, c, logits, {0, 0, 0, -1});
    EXPECT_DONE(ranks.Stats());
    const auto losses = e.Read(ranks.losses);
    EXPECT_TRUE(std::isnan(losses[0])) << losses[0];
    EXPECT_TRUE(std::isnan(losses[1]));
    EXPECT_NEAR(losses[2], std::log(1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-5);
    EXPECT_EQ(losses[3], 0);
    EXPECT_DONE(ranks.Gradients(std::vector<float>(static_cast<size_t>(c.rows), 1.0f)));
    const auto slopes = e.Read(ranks.parts[0]);
    for (size_t i = 0; i < 10; ++i) EXPECT_TRUE(std::isnan(slopes[i])) << i;
    for (size_t i = 10; i < 15; ++i) EXPECT_TRUE(std::isfinite(slopes[i])) << i;
    for (size_t i = 15; i < 20; ++i) EXPECT_EQ(slopes[i], 0) << i;
}

TEST(VulkanLoss, RefusesStatisticsOfZeroRanks) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(1, 2));
    const ValueId stats = e.Place({kOutputs, 4}, DType::kF32), ids = e.AddInts({kOutputs});
    const ValueId losses = e.Place({kOutputs}, DType::kF32),
                  hits = e.Place({kOutputs}, DType::kF32);
    EXPECT_FALSE(e.Do(program::CrossEntropy{}, {stats, ids}, {losses, hits}).ok());
}

}  // namespace
}  // namespace weft::backend::on_gpu
