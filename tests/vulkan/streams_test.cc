// Ops of residual streams, of Gemma 3n and of experts without matrices on a GPU against the
// formulas in double (support/naive_streams.h), over odd sizes and 1 to 70 rows.
#include <gtest/gtest.h>

#include <cmath>

#include "support/kernel_levels.h"
#include "support/naive_experts.h"
#include "support/naive_streams.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::test::kUlp;
using kernels::test::Random;
using program::kTokens;
using program::ValueId;
using test::BenchEmitter;

// A value with rows of the step, or with `weight` a vector.
struct StreamInput {
    std::vector<float> values;
    bool weight = false;
    std::vector<int32_t> ids{};  // instead of values
};

// Compares y = op(inputs) with the formula. An element may be off by `bound` times the largest
// element of the formula's row.
template <typename Attributes>
void CheckFormula(const std::shared_ptr<gpu::Device>& device, int32_t rows, const Attributes& a,
                  const std::vector<StreamInput>& inputs, int64_t cols, double bound) {
    SCOPED_TRACE(fmt::format("{}, {} rows of {}", Attributes::kRow.name, rows, cols));
    BenchEmitter e(device, {.rows = rows, .positions = 64});
    std::vector<ValueId> in;
    std::vector<std::vector<double>> wide;
    for (const StreamInput& input : inputs) {
        const auto width = static_cast<int64_t>(input.values.size() + input.ids.size()) / rows;
        if (!input.ids.empty()) {
            in.push_back(e.AddInts({kTokens, width}, input.ids));
            wide.emplace_back(input.ids.begin(), input.ids.end());
            continue;
        }
        in.push_back(input.weight ? e.AddVector(input.values)
                                  : e.AddFloats({kTokens, width}, input.values));
        wide.emplace_back(input.values.begin(), input.values.end());
    }
    const ValueId y = e.AddFloats({kTokens, cols});
    const Status lowered = e.Lower(a, in, {y});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status ran = e.Run();
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    support::OpCall<double> call;
    for (size_t i = 0; i < wide.size(); ++i) {
        const bool weight = inputs[i].weight;
        call.in.push_back({wide[i], weight ? static_cast<int64_t>(wide[i].size()) : rows});
    }
    std::vector<double> expected(static_cast<size_t>(rows * cols));
    call.out.push_back({expected, rows});
    support::naive::Do(a, call);
    const std::vector<float> got = e.Floats(y);
    for (int64_t row = 0; row < rows; ++row) {
        double most = 0;
        for (int64_t i = 0; i < cols; ++i) most = std::max(most, std::fabs(call.out[0](row, i)));
        for (int64_t i = 0; i < cols; ++i) {
            const double error =
                std::fabs(got[static_cast<size_t>(row * cols + i)] - call.out[0](row, i));
            ASSERT_FALSE(!(error <= bound * most))
                << "row " << row << ", column " << i << " of " << most << ": off by " << error;
        }
    }
}

constexpr int32_t kStreamRows[] = {1, 3, 8, 70};

// Streams that are not mixed (Hy4).
TEST(VulkanStreams, ThatAreKept) {
    WEFT_VULKAN(device);
    Random random(1);
    for (const int32_t rows : kStreamRows) {
        const int64_t n = random.Int(2, 8), cols = random.Pick<int64_t>({1, 63, 300});
        const StreamInput weights{random.Normals(rows * 2 * n)};
        CheckFormula(device, rows, program::MixStreams{n},
                     {{random.Normals(rows * n * cols)}, weights, {random.Normals(rows * cols)}},
                     n * cols, 4 * kUlp);
        // Sigmoids are off by less than 40 roundings.
        CheckFormula(device, rows, program::StreamWeights{n, 1, 1e-3f, 1.7f},
                     {weights, {random.Normals(2 * n), true}, {random.Normals(2), true}}, 2 * n,
                     40 * kUlp);
    }
}

TEST(VulkanStreams, OfAltUp) {
    WEFT_VULKAN(device);
    Random random(2);
    for (const int32_t rows : kStreamRows) {
        const int64_t n = random.Int(2, 8), cols = random.Pick<int64_t>({1, 63, 300, 1024});
        CheckFormula(device, rows, program::AltUpWeights{n, false},
                     {{random.Normals(rows * n * n)}}, n * (2 + n), 4 * kUlp);
        CheckFormula(device, rows, program::AltUpWeights{n, true}, {{random.Normals(rows * n)}},
                     n * (2 + n), 4 * kUlp);
        CheckFormula(device, rows, program::ScaleColumns{},
                     {{random.Normals(rows * (cols + 5))}, {random.Normals(cols), true}}, cols,
                     2 * kUlp);
        // Half of the error of the two sums of squares, and a few roundings of the factor.
        StreamInput x{random.Normals(rows * n * cols)};
        std::fill_n(x.values.begin(), cols, 1e-4f);  // a mean square below the least
        CheckFormula(device, rows, program::MatchStreams{}, {x, {random.Normals(rows * cols)}},
                     n * cols, static_cast<double>(cols + 20) * kUlp);
    }
}

TEST(VulkanStreams, GatesAboveTheirCut) {
    WEFT_VULKAN(device);
    Random random(3);
    for (const int32_t rows : kStreamRows) {
        const int64_t cols = random.Pick<int64_t>({2, 63, 300, 2500});
        const StreamInput x{random.Normals(rows * cols, 3)};
        // Numbers of one sign, so that the sum is as exact as its addends.
        StreamInput positive = x;
        for (float& value : positive.values) value = std::fabs(value);
        CheckFormula(device, rows, program::RowMoments{}, {positive}, 2,
                     static_cast<double>(cols) * kUlp);
        std::vector<float> moments;
        for (int32_t row = 0; row < rows; ++row) {
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < cols; ++i) {
                const double value = x.values[static_cast<size_t>(row * cols + i)];
                sum += value, squares += value * value;
            }
            moments.insert(moments.end(), {static_cast<float>(sum), static_cast<float>(squares)});
        }
        // (The cut is at most as large as twice the largest element, which may be just above it.)
        CheckFormula(device, rows, program::Sparsify{cols, -0.7f}, {x, {moments}}, cols, 64 * kUlp);
        CheckFormula(device, rows, program::Sparsify{2 * cols, 0.3f}, {x, {moments}}, cols,
                     64 * kUlp);
    }
}

TEST(VulkanExperts, WithoutMatrices) {
    WEFT_VULKAN(device);
    Random random(4);
    for (const int32_t rows : kStreamRows) {
        const int64_t used = random.Int(1, 12), cols = random.Pick<int64_t>({1, 3, 64, 257});
        StreamInput ids;
        for (int64_t i = 0; i < rows * used; ++i) {
            ids.ids.push_back(static_cast<int32_t>(random.Int(0, 9)));
        }
        StreamInput weights{random.Normals(rows * used)};
        for (float& weight : weights.values) weight = std::fabs(weight);
        CheckFormula(device, rows, program::IdentityExperts{6},
                     {{random.Normals(rows * cols)}, ids, weights}, cols,
                     static_cast<double>(used + 2) * kUlp);
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
