// Mixtures of experts on a GPU: routing against kernels/experts.h, products against sums in
// float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/experts.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

struct RouteCase {
    int64_t rows = 1, experts = 8, used = 2;
    program::Route route{};
    bool bias = false;
};

// Logits on a coarse grid, which has equal and clearly different values, but no near ties that a
// different rounding of exp could reverse.
std::vector<float> CoarseLogits(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> logits(static_cast<size_t>(count));
    for (float& logit : logits) {
        logit = static_cast<float>(static_cast<int>(random() % 33) - 16) * 0.25f;
    }
    return logits;
}

void ExpectRouted(const std::shared_ptr<gpu::Device>& device, const RouteCase& c, uint32_t seed) {
    const std::vector<float> logits = CoarseLogits(c.rows * c.experts, seed);
    const std::vector<float> bias =
        c.bias ? CoarseLogits(c.experts, seed + 1) : std::vector<float>{};
    const std::vector<float> factors = RandomValues(c.experts, seed + 2);
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(c.rows)});
    std::vector<ValueId> inputs = {e.AddFloats({kTokens, c.experts}, logits)};
    if (c.bias) inputs.push_back(e.AddVector(bias));
    if (c.route.factors) inputs.push_back(e.AddVector(factors));
    const ValueId ids = e.AddInts({kTokens, c.used});
    const ValueId weights = e.AddFloats({kTokens, c.used});
    ASSERT_TRUE(e.Lower(c.route, inputs, {ids, weights}).ok());
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;

    std::vector<int32_t> expected_ids(static_cast<size_t>(c.rows * c.used));
    std::vector<float> expected(expected_ids.size());
    kernels::RouteArgs args;
    args.logits = logits.data();
    args.bias = c.bias ? bias.data() : nullptr;
    args.factors = c.route.factors ? factors.data() : nullptr;
    args.rows = c.rows;
    args.experts = c.experts;
    args.used = c.used;
    args.score = static_cast<kernels::RouterScore>(c.route.score);
    args.jitter = c.route.jitter;
    args.groups = c.route.groups;
    args.groups_used = c.route.groups_used;
    args.group_best = c.route.group_best;
    args.renormalise = c.route.renormalise;
    args.scale = c.route.scale;
    args.ids = expected_ids.data();
    args.weights = expected.data();
    kernels::Route(args, 0, 1);
    EXPECT_EQ(e.Ints(ids), expected_ids);
    const std::vector<float> got = e.Floats(weights);
    for (size_t i = 0; i < got.size(); ++i) {
        // The error of exp may be 3 + 2 |x| units in the last place (GLSL in Vulkan), x up to 8;
        // that of a sum of scores, one unit for each.
        const double bound = (64 + static_cast<double>(c.experts)) * 0x1p-23 *
                             (std::fabs(static_cast<double>(expected[i])) + 1e-9);
        EXPECT_TRUE(std::fabs(static_cast<double>(got[i] - expected[i])) <= bound)
            << i << ": " << got[i] << ", not " << expected[i];
    }
}

TEST(VulkanExperts, RoutesAsTheReference) {
    WEFT_VULKAN(device);
    using program::GateScore;
    ExpectRouted(device, {1, 8, 2, {}}, 1);
    ExpectRouted(device, {70, 128, 8, {.renormalise = true}}, 2);
    ExpectRouted(device, {9, 5, 5, {.scale = 2.5f, .factors = true}}, 3);
    ExpectRouted(device,
                 {33,
                  256,
                  8,
                  {.score = GateScore::kSigmoid,
                   .groups = 8,
                   .groups_used = 4,
                   .group_best = 2,
                   .renormalise = true,
                   .scale = 2.5f},
                  true},
                 4);
    ExpectRouted(device, {7, 60, 6, {.groups = 3, .groups_used = 1, .group_best = 1}}, 5);
    ExpectRouted(device, {3, 1024, 16, {.score = GateScore::kSigmoid, .factors = true}, true}, 6);
    ExpectRouted(device, {40, 16, 2, {.score = GateScore::kSparseMixer, .jitter = 0.3f}}, 7);
}

// A step of rows that chose `used` of `all` experts; this rank has the `held` experts from `first`.
struct ExpertStep {
    int64_t rows, used, all, first, held;
    std::vector<int32_t> ids;
    ExpertStep(int64_t r, int64_t u, int64_t a, int64_t f, int64_t h, uint32_t seed)
        : rows(r), used(u), all(a), first(f), held(h) {
        std::mt19937 random(seed);
        std::vector<int32_t> order(static_cast<size_t>(all));
        std::iota(order.begin(), order.end(), 0);
        for (int64_t t = 0; t < rows; ++t) {
            std::ranges::shuffle(order, random);
            ids.insert(ids.end(), order.begin(), order.begin() + used);
        }
    }
    // The matrix index of a slot; -1: on another rank.
    int64_t Matrix(int64_t slot) const {
        const int64_t e = ids[static_cast<size_t>(slot)] - first;
        return e >= 0 && e < held ? e : -1;
    }
};

std::vector<ExpertStep> ExpertSteps() {
    std::vector<ExpertStep> steps;
    uint32_t seed = 70;
    for (const int64_t rows : {1, 2, 5, 8, 9, 40, 70}) {
        steps.emplace_back(rows, 2, 4, 0, 4, ++seed);
        steps.emplace_back(rows, 3, 7, 2, 3, ++seed);
    }
    return steps;
}

double ExpertBound(int64_t count, double sizes) {
    return 2 * static_cast<double>(count) * 0x1p-24 * sizes + 1e-36;
}

struct ExactSum {
    double value = 0, sizes = 0;
    void Add(double factor, std::span<const float> w, std::span<const float> x) {
        for (size_t i = 0; i < w.size(); ++i) {
            const double product = factor * static_cast<double>(w[i]) * static_cast<double>(x[i]);
            value += product;
            sizes += std::fabs(product);
        }
    }
    void Add(double addend) {
        value += addend;
        sizes += std::fabs(addend);
    }
};

// x by token or by slot; the outputs of other ranks' slots stay unchanged.
void ExpectExpertProducts(const std::shared_ptr<gpu::Device>& device, const ExpertStep& step,
                          DType dtype, bool by_token, bool bias, bool reference) {
    const int64_t n = 19, cols = Info(dtype).block_elements == 1 ? 37 : 256;
    const int64_t slots = step.rows * step.used;
    const RandomWeight weight(dtype, step.held * n, cols, static_cast<uint32_t>(step.rows));
    const std::vector<float> x = RandomValues((by_token ? step.rows : slots) * cols, 3);
    const std::vector<float> biases = RandomValues(step.held * n, 4);
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(step.rows)});
    e.set_reference(reference);
    const ValueId in =
        by_token ? e.AddFloats({kTokens, cols}, x) : e.AddFloats({kTokens, step.used, cols}, x);
    const ValueId ids = e.AddInts({kTokens, step.used}, step.ids);
    const ValueId w = e.AddWeight(dtype, {step.held, n, cols}, weight.blocks);
    std::vector<ValueId> inputs = {in, ids, w};
    if (bias) inputs.push_back(e.AddFloats({step.held, 1, n}, biases));
    const ValueId y = e.AddFloats({kTokens, step.used, n});
    const Status lowered = e.Lower(program::ExpertMatMul{.first_expert = step.first}, inputs, {y});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> got = e.Floats(y);
    for (int64_t slot = 0; slot < slots; ++slot) {
        const int64_t matrix = step.Matrix(slot);
        const auto row = static_cast<size_t>((by_token ? slot / step.used : slot) * cols);
        for (int64_t r = 0; r < n && matrix >= 0; ++r) {
            ExactSum exact;
            exact.Add(1, weight.Row(matrix * n + r),
                      std::span(x).subspan(row, static_cast<size_t>(cols)));
            if (bias) exact.Add(static_cast<double>(biases[static_cast<size_t>(matrix * n + r)]));
            const float value = got[static_cast<size_t>(slot * n + r)];
            ASSERT_TRUE(std::fabs(static_cast<double>(value) - exact.value) <=
                        ExpertBound(cols + 1, exact.sizes))
                << Info(dtype).name << " rows " << step.rows << " slot " << slot << " output " << r
                << ": " << value << ", exact " << exact.value;
        }
    }
}

TEST(VulkanExperts, RowsTimesTheMatricesOfTheirExperts) {
    WEFT_VULKAN(device);
    for (const ExpertStep& step : ExpertSteps()) {
        ExpectExpertProducts(device, step, DType::kQ4_K, true, false, false);
        ExpectExpertProducts(device, step, DType::kMXFP4, false, true, false);
        ExpectExpertProducts(device, step, DType::kF32, true, true, true);
        if (HasFailure()) return;
    }
}

void ExpectExpertSums(const std::shared_ptr<gpu::Device>& device, const ExpertStep& step,
                      DType dtype, bool has_bias, bool has_base, bool reference) {
    const int64_t n = 19, cols = Info(dtype).block_elements == 1 ? 37 : 256;
    const int64_t slots = step.rows * step.used;
    const RandomWeight weight(dtype, step.held * n, cols, static_cast<uint32_t>(step.rows));
    std::vector<float> x = RandomValues(slots * cols, 3);
    for (int64_t i = 0; i < slots * cols; ++i) {  // slots that nobody wrote
        if (step.Matrix(i / cols) < 0) x[static_cast<size_t>(i)] = NAN;
    }
    const std::vector<float> factors = RandomValues(slots, 5);
    const std::vector<float> biases = RandomValues(step.held * n, 4);
    const std::vector<float> base = RandomValues(step.rows * n, 6);
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(step.rows)});
    e.set_reference(reference);
    std::vector<ValueId> inputs = {e.AddFloats({kTokens, step.used, cols}, x),
                                   e.AddInts({kTokens, step.used}, step.ids),
                                   e.AddFloats({kTokens, step.used}, factors),
                                   e.AddWeight(dtype, {step.held, n, cols}, weight.blocks)};
    if (has_bias) inputs.push_back(e.AddFloats({step.held, 1, n}, biases));
    if (has_base) inputs.push_back(e.AddFloats({kTokens, n}, base));
    const ValueId y = e.AddFloats({kTokens, n});
    const program::ExpertSum op{.first_expert = step.first, .bias = has_bias, .base = has_base};
    const Status lowered = e.Lower(op, inputs, {y});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> got = e.Floats(y);
    for (int64_t t = 0; t < step.rows; ++t) {
        for (int64_t r = 0; r < n; ++r) {
            ExactSum exact;
            if (has_base) exact.Add(static_cast<double>(base[static_cast<size_t>(t * n + r)]));
            for (int64_t slot = t * step.used; slot < (t + 1) * step.used; ++slot) {
                const int64_t matrix = step.Matrix(slot);
                if (matrix < 0) continue;
                const auto factor = static_cast<double>(factors[static_cast<size_t>(slot)]);
                exact.Add(factor, weight.Row(matrix * n + r),
                          std::span(x).subspan(static_cast<size_t>(slot * cols),
                                               static_cast<size_t>(cols)));
                if (has_bias) {
                    exact.Add(factor *
                              static_cast<double>(biases[static_cast<size_t>(matrix * n + r)]));
                }
            }
            const float value = got[static_cast<size_t>(t * n + r)];
            ASSERT_TRUE(std::fabs(static_cast<double>(value) - exact.value) <=
                        ExpertBound(step.used * (cols + 2) + 1, exact.sizes))
                << Info(dtype).name << " rows " << step.rows << " row " << t << " output " << r
                << ": " << value << ", exact " << exact.value;
        }
    }
}

TEST(VulkanExperts, RowsTimesTheirWeights) {
    WEFT_VULKAN(device);
    for (const auto& [rows, used, cols] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 5120}, {1, 3, 7}, {70, 2, 96}, {33, 1, 256}}) {
        BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
        const std::vector<float> x = RandomValues(rows * cols, 1),
                                 weights = RandomValues(rows * used, 2);
        const ValueId in = e.AddFloats({kTokens, cols}, x), ids = e.AddInts({kTokens, used});
        const ValueId weighs = e.AddFloats({kTokens, used}, weights);
        const ValueId y = e.AddFloats({kTokens, used, cols});
        const ValueId rest = e.AddFloats({kTokens, used});
        ASSERT_TRUE(e.Lower(program::WeighRows{0, 4}, {in, ids, weighs}, {y, rest}).ok());
        const Status run = e.Run();
        ASSERT_TRUE(run.ok()) << run.error().message;
        EXPECT_EQ(e.Floats(rest), std::vector<float>(weights.size(), 1));
        std::vector<float> expected;
        for (size_t slot = 0; slot < weights.size(); ++slot) {
            const size_t token = slot / static_cast<size_t>(used);
            for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
                expected.push_back(weights[slot] * x[token * static_cast<size_t>(cols) + c]);
            }
        }
        EXPECT_EQ(e.Floats(y), expected);
    }
}

TEST(VulkanExperts, SumsOverExperts) {
    WEFT_VULKAN(device);
    for (const ExpertStep& step : ExpertSteps()) {
        ExpectExpertSums(device, step, DType::kQ6_K, false, true, false);
        ExpectExpertSums(device, step, DType::kMXFP4, true, false, false);
        ExpectExpertSums(device, step, DType::kF16, true, true, true);
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
