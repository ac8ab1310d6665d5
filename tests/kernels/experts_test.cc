// Routing, and the grouped matmuls: each row must have the bits that the table's own matmul gives
// it alone, for any number of parts and any other rows.
#include "kernels/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "support/cpu_levels.h"
#include "support/kernel_levels.h"
#include "tensor/quant.h"

namespace weft::kernels {
namespace {

using test::Random;

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Routed RouteAll(RouteArgs args, const std::vector<float>& logits, int parts = 1) {
    Routed routed;
    args.logits = logits.data();
    args.rows = static_cast<int64_t>(logits.size()) / args.experts;
    routed.ids.resize(static_cast<size_t>(args.rows * args.used));
    routed.weights.resize(routed.ids.size());
    args.ids = routed.ids.data();
    args.weights = routed.weights.data();
    test::RunParts(Route, args, parts);
    return routed;
}

float Logit(float probability) {
    return std::log(probability / (1 - probability));
}

// Sigmoids of 0.6, 0.5, 0.4, 0.3; the bias moves the last to the front.
TEST(Route, BiasAffectsOnlyTheChoice) {
    const std::vector<float> bias = {0, 0, 0, 10};
    RouteArgs args{.bias = bias.data(), .experts = 4, .used = 2, .score = RouterScore::kSigmoid};
    args.renormalise = true;
    args.scale = 2.5f;
    const Routed routed = RouteAll(args, {Logit(0.6f), Logit(0.5f), Logit(0.4f), Logit(0.3f)});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{3, 0}));
    EXPECT_NEAR(routed.weights[0], 2.5 * 0.3 / 0.9, 1e-6);
    EXPECT_NEAR(routed.weights[1], 2.5 * 0.6 / 0.9, 1e-6);
}

TEST(Route, FactorsAffectOnlyTheWeights) {
    const std::vector<float> factors = {100, 2, 0.5f, 3};
    const RouteArgs args{.factors = factors.data(),
                         .experts = 4,
                         .used = 2,
                         .score = RouterScore::kSigmoid,
                         .renormalise = true};
    const Routed routed = RouteAll(args, {Logit(0.1f), Logit(0.2f), Logit(0.6f), Logit(0.1f)});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 1}));
    EXPECT_NEAR(routed.weights[0], 0.75f * 0.5f, 1e-5f);
    EXPECT_NEAR(routed.weights[1], 0.25f * 2.0f, 1e-5f);
}

// Groups {0.9, 0.1} and {0.6, 0.5}: ranked by their best score, or by the sum of their best two.
TEST(Route, GroupsByTheirBestOrBestTwo) {
    const std::vector<float> logits = {Logit(0.9f), Logit(0.1f), Logit(0.6f), Logit(0.5f)};
    RouteArgs args{
        .experts = 4, .used = 2, .score = RouterScore::kSigmoid, .groups = 2, .groups_used = 1};
    EXPECT_EQ(RouteAll(args, logits).ids, (std::vector<int32_t>{0, 1}));
    args.group_best = 2;
    EXPECT_EQ(RouteAll(args, logits).ids, (std::vector<int32_t>{2, 3}));
}

// An ineligible group is not chosen even if all eligible experts rank below zero.
TEST(Route, IneligibleGroupsRankLast) {
    const std::vector<float> bias = {-3, -3, -9, -9};
    const RouteArgs args{.bias = bias.data(),
                         .experts = 4,
                         .used = 2,
                         .score = RouterScore::kSigmoid,
                         .groups = 2,
                         .groups_used = 1,
                         .group_best = 2};
    EXPECT_EQ(RouteAll(args, {-1, 0, 5, 5}).ids, (std::vector<int32_t>{1, 0}));
}

TEST(Route, ExpertsByTokenWhateverTheScores) {
    const std::vector<float> table = {0, 1, 3, 2, 4, 7, -1, NAN};  // three are not experts
    const std::vector<int32_t> tokens = {1, 0, 2, 3, 9};
    RouteArgs args{.experts = 5, .used = 2, .tokens = tokens.data(), .table = table.data()};
    args.vocab = 4;
    args.score = RouterScore::kSqrtSoftplus;
    args.renormalise = true;
    args.scale = 1.5f;
    std::vector<float> logits;
    for (int row = 0; row < 5; ++row) logits.insert(logits.end(), {-50, -1, 0, 2, 90});
    const Routed routed = RouteAll(args, logits);
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{3, 2, 0, 1, 4, 4, 0, 0, 0, 0}));
    const double two = std::sqrt(std::log1p(std::exp(2.0))), zero = std::sqrt(std::log(2.0));
    EXPECT_NEAR(routed.weights[0], 1.5 * two / (two + zero), 1e-6);
    EXPECT_NEAR(routed.weights[1], 1.5 * zero / (two + zero), 1e-6);
    EXPECT_NEAR(routed.weights[4], 0.75, 1e-6);
}

// The best logit, 2, has 1.8 near it (0.2 / 2 <= 0.1), but neither 1.7 nor 0; the second, 1.8, has
// 1.7 near it, and no longer the 2. Negative logits are measured by their own size.
TEST(Route, SparseMixing) {
    RouteArgs args{.experts = 4, .used = 2, .score = RouterScore::kSparseMixer, .jitter = 0.1001f};
    const Routed routed = RouteAll(args, {1.7f, 2, 1.8f, 0, -3, -2.8f, -4, -2});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 2, 3, 1}));
    EXPECT_NEAR(routed.weights[0], 1 / (1 + std::exp(-0.2)), 1e-6);
    EXPECT_NEAR(routed.weights[1], 1 / (1 + std::exp(-0.1)), 1e-6);
    EXPECT_NEAR(routed.weights[2], 1, 1e-6);
    EXPECT_NEAR(routed.weights[3], 1 / (1 + std::exp(-0.2)), 1e-6);
}

TEST(Route, EqualScoresGoToTheLowerId) {
    const RouteArgs args{.experts = 5, .used = 3};
    const Routed routed = RouteAll(args, {1, 2, 2, 1, 2});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 2, 4}));
    EXPECT_EQ(routed.weights[0], routed.weights[2]);
}

TEST(Route, SoftmaxWithAndWithoutRenormalising) {
    RouteArgs args{.experts = 3, .used = 2};
    const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
    const Routed plain = RouteAll(args, {1, 3, 2});
    EXPECT_NEAR(plain.weights[0], std::exp(3.0) / sum, 1e-6);
    EXPECT_NEAR(plain.weights[1], std::exp(2.0) / sum, 1e-6);
    args.renormalise = true;
    const Routed whole = RouteAll(args, {1, 3, 2});
    EXPECT_NEAR(whole.weights[0], std::exp(3.0) / (std::exp(3.0) + std::exp(2.0)), 1e-6);
}

// Ids are valid for any input: later kernels use them as addresses.
TEST(Route, NanStillGivesValidExperts) {
    const RouteArgs args{.experts = 4, .used = 3, .groups = 2, .groups_used = 2};
    const Routed routed = RouteAll(args, {NAN, 1, INFINITY, NAN, NAN, NAN, NAN, NAN}, 2);
    for (int32_t id : routed.ids) EXPECT_TRUE(id >= 0 && id < 4) << id;
}

// Sigmoids of 20 and 30 are both 1.
TEST(Route, LogitsBreakTiesOfScores) {
    const RouteArgs args{.experts = 4, .used = 2, .score = RouterScore::kSigmoid};
    const Routed routed = RouteAll(args, {20, -1, 30, 25});
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 3}));
    EXPECT_EQ(routed.weights, (std::vector<float>{1, 1}));
    const Routed lost = RouteAll(args, {-INFINITY, NAN, -INFINITY, NAN});
    EXPECT_EQ(lost.ids, (std::vector<int32_t>{0, 1}));
}

TEST(PlanExperts, SortsSlotsOfLocalExperts) {
    const std::vector<int32_t> ids = {4, 1, 2, 4, 1, 0};
    std::vector<int32_t> begin(4), slots(6, -1);
    PlanExpertsArgs args{ids.data(), 3, 2, 1, 3, {begin.data(), slots.data()}};
    PlanExperts(args, 0, 1);
    EXPECT_EQ(begin, (std::vector<int32_t>{0, 2, 3, 3}));  // of experts 1, 2, 3
    EXPECT_EQ(slots, (std::vector<int32_t>{1, 4, 2, -1, -1, -1}));
}

// ---- Grouped matmuls ----------------------------------------------------------------------------

struct Aligned {
    explicit Aligned(int64_t bytes)
        : data(static_cast<std::byte*>(
                   std::aligned_alloc(64, static_cast<size_t>((bytes + 127) / 64 * 64))),
               &std::free) {}
    std::unique_ptr<std::byte, decltype(&std::free)> data;
};

struct Case {
    const Kernels& kernels;
    DType dtype;
    int64_t tokens, used, experts, first, held, rows, cols;
};

// A random stack, routes, and both forms of random activations.
class Groups {
  public:
    Groups(const Case& c, Random& random, int64_t x_rows)
        : c_(c),
          memory_(c.held * StackStride(c.kernels, c.dtype, c.rows, c.cols)),
          x(random.Normals(x_rows * c.cols)),
          quantized_(x_rows * c.kernels.quantized_bytes(c.cols)),
          scratch_(8 * GroupScratchBytes(c.kernels, c.cols)) {
        stack = {c.dtype,
                 c.held,
                 c.rows,
                 c.cols,
                 StackStride(c.kernels, c.dtype, c.rows, c.cols),
                 memory_.data.get()};
        const int64_t row_bytes = RowBytes(c.dtype, c.cols);
        std::vector<std::byte> blocks(static_cast<size_t>(c.rows * row_bytes));
        for (int64_t e = 0; e < c.held; ++e) {
            QuantizeRow(c.dtype, random.Normals(c.rows * c.cols), blocks);
            c.kernels.pack(stack.Matrix(e), 0, c.rows, blocks.data(), row_bytes);
        }
        if (const ActivationFormat as = c.kernels.activation_format(c.dtype);
            as != ActivationFormat::kNone) {
            c.kernels.quantize_activations(
                {x.data(), c.cols, x_rows, c.cols, quantized_.data.get(), as}, 0, 1);
        }
        bias = random.Normals(c.held * c.rows);
        for (int64_t t = 0; t < c.tokens; ++t) Choose(random);
        begin_.resize(static_cast<size_t>(c.held + 1));
        slots_.resize(ids.size());
        plan = {begin_.data(), slots_.data()};
        PlanExperts({ids.data(), c.tokens, c.used, c.first, c.held, plan}, 0, 1);
        weights = random.Normals(c.tokens * c.used);
    }

    const std::byte* quantized() const {
        const bool plain = c_.kernels.activation_format(c_.dtype) == ActivationFormat::kNone;
        return plain ? nullptr : quantized_.data.get();
    }
    std::byte* scratch() { return scratch_.data.get(); }
    int64_t scratch_bytes() const { return GroupScratchBytes(c_.kernels, c_.cols); }

    // Row `row` of x times matrix e, alone, with the table's own matmul.
    std::vector<double> Alone(int64_t row, int64_t e, int64_t segment, bool with_bias) const {
        std::vector<float> y(static_cast<size_t>(c_.rows));
        std::vector<double> wide(y.size());
        MatMulArgs args;
        args.weight = stack.Matrix(e);
        args.x = x.data() + row * c_.cols;
        args.x_stride = c_.cols;
        args.quantized = quantized_.data.get() + row * c_.kernels.quantized_bytes(c_.cols);
        args.rows = 1;
        if (with_bias) args.bias = bias.data() + e * c_.rows;
        args.segment_cols = segment;
        args.y_stride = c_.rows;
        (segment != 0 ? void(args.wide = wide.data()) : void(args.y = y.data()));
        c_.kernels.matmul(args, 0, 1);
        if (segment == 0) wide.assign(y.begin(), y.end());
        return wide;
    }

    const Case& c_;
    Aligned memory_;
    PackedStack stack;
    std::vector<float> x, bias, weights;
    std::vector<int32_t> ids;
    ExpertPlan plan;

  private:
    void Choose(Random& random) {
        std::vector<int32_t> all(static_cast<size_t>(c_.experts));
        std::iota(all.begin(), all.end(), 0);
        random.Shuffle(all);
        ids.insert(ids.end(), all.begin(), all.begin() + c_.used);
    }

    Aligned quantized_, scratch_;
    std::vector<int32_t> begin_, slots_;
};

std::vector<Case> ExpertsCases(Random& random) {
    std::vector<Case> cases;
    for (CpuLevel level : weft::test::TestedCpuLevels()) {
        for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ6_K, DType::kQ5_0}) {
            if (level == CpuLevel::kReference && dtype != DType::kQ4_0) continue;
            for (int64_t tokens : {int64_t{1}, random.Int(2, 40), int64_t{110}}) {
                if (weft::test::RunsWithStandIn(level) && tokens > 1) continue;
                const int64_t experts = random.Int(4, 9), first = random.Int(0, 2);
                cases.push_back({KernelsFor(level), dtype, tokens, random.Int(1, 3), experts, first,
                                 random.Int(1, experts - first), random.Int(1, 40), 256});
            }
        }
    }
    return cases;
}

std::string Name(const Case& c) {
    return fmt::format("level {} {} tokens {} used {} experts {} first {} held {} rows {}",
                       static_cast<int>(c.kernels.level), Info(c.dtype).name, c.tokens, c.used,
                       c.experts, c.first, c.held, c.rows);
}

TEST(ExpertMatMul, EachRowEqualsItsExpertsProduct) {
    Random random(1);
    for (const Case& c : ExpertsCases(random)) {
        for (bool by_token : {true, false}) {
            SCOPED_TRACE(Name(c));
            Groups g(c, random, by_token ? c.tokens : c.tokens * c.used);
            const int64_t rows = g.plan.begin[c.held];
            std::vector<float> y(static_cast<size_t>(rows * c.rows), NAN);
            ExpertMatMulArgs args{g.stack, g.bias.data(), g.plan, c.used, by_token};
            args.x = g.x.data();
            args.x_stride = c.cols;
            args.quantized = g.quantized();
            args.y = y.data();
            args.y_stride = c.rows;
            args.scratch = g.scratch();
            args.scratch_bytes = g.scratch_bytes();
            const int parts = static_cast<int>(random.Int(1, 5));
            for (int p = parts - 1; p >= 0; --p) ExpertMatMul(c.kernels, args, p, parts);
            for (int64_t e = 0; e < c.held; ++e) {
                for (int64_t i = g.plan.begin[e]; i < g.plan.begin[e + 1]; ++i) {
                    const auto alone = g.Alone(by_token ? g.plan.slots[i] / c.used : i, e, 0, true);
                    for (int64_t r = 0; r < c.rows; ++r) {
                        ASSERT_EQ(y[static_cast<size_t>(i * c.rows + r)],
                                  static_cast<float>(alone[static_cast<size_t>(r)]));
                    }
                }
            }
        }
    }
}

// A float64 sum of exactly these addends in the order of ids: the same bits.
TEST(ExpertSum, IsTheWeightedSumOverATokensExperts) {
    Random random(2);
    for (const Case& c : ExpertsCases(random)) {
        for (int64_t segment : {0, 64}) {
            SCOPED_TRACE(Name(c));
            Groups g(c, random, c.tokens * c.used);
            const std::vector<float> base = random.Normals(c.tokens * c.rows);
            std::vector<double> wide(base.size(), NAN);
            std::vector<float> y(base.size(), NAN);
            ExpertSumArgs args{g.stack, g.bias.data(), g.plan, c.used, g.weights.data()};
            args.x = g.x.data();
            args.x_stride = c.cols;
            args.quantized = g.quantized();
            args.rows = c.tokens;
            args.segment_cols = segment;
            args.base = base.data();
            args.wide = wide.data();
            args.y = y.data();
            args.scratch = g.scratch();
            args.scratch_bytes = g.scratch_bytes();
            const int parts = static_cast<int>(random.Int(1, 4));
            for (int p = 0; p < parts; ++p) ExpertSum(c.kernels, args, p, parts);
            std::vector<double> expected(base.begin(), base.end());
            for (int64_t e = 0; e < c.held; ++e) {
                for (int64_t i = g.plan.begin[e]; i < g.plan.begin[e + 1]; ++i) {
                    const int32_t slot = g.plan.slots[i];
                    const auto alone = g.Alone(i, e, segment, false);
                    const double weight = g.weights[static_cast<size_t>(slot)];
                    for (int64_t r = 0; r < c.rows; ++r) {
                        double& sum = expected[static_cast<size_t>(slot / c.used * c.rows + r)];
                        sum += weight * alone[static_cast<size_t>(r)];
                        sum += weight * double{g.bias[static_cast<size_t>(e * c.rows + r)]};
                    }
                }
            }
            for (size_t i = 0; i < wide.size(); ++i) {
                ASSERT_EQ(wide[i], expected[i]) << i;
                ASSERT_EQ(y[i], static_cast<float>(expected[i])) << i;
            }
        }
    }
}

TEST(HeadMatMul, EachHeadHasItsOwnMatrix) {
    Random random(3);
    for (const Case& c : ExpertsCases(random)) {
        SCOPED_TRACE(Name(c));
        const int64_t heads = c.held;
        Groups g(c, random, c.tokens * heads);
        std::vector<float> y(static_cast<size_t>(c.tokens * heads * c.rows), NAN);
        HeadMatMulArgs args{g.stack, g.x.data(), g.quantized(), c.tokens, y.data()};
        args.scratch = g.scratch();
        args.scratch_bytes = g.scratch_bytes();
        const int parts = static_cast<int>(random.Int(1, 5));
        for (int p = 0; p < parts; ++p) HeadMatMul(c.kernels, args, p, parts);
        for (int64_t row = 0; row < c.tokens * heads; ++row) {
            const auto alone = g.Alone(row, row % heads, 0, false);
            for (int64_t r = 0; r < c.rows; ++r) {
                ASSERT_EQ(y[static_cast<size_t>(row * c.rows + r)],
                          static_cast<float>(alone[static_cast<size_t>(r)]));
            }
        }
    }
}

// For experts 1 to 3, in order; all remaining weights are 1, also for experts on other ranks.
TEST(WeighRows, ARowForEachExpertOfAToken) {
    const std::vector<int32_t> ids = {4, 1, 2, 4, 1, 0};
    const std::vector<float> x = {1, 2, 3, 4, 5, 6}, weights = {9, 0.5f, 2, 9, -1, 9};
    std::vector<int32_t> begin(4), slots(6);
    const ExpertPlan plan{begin.data(), slots.data()};
    PlanExperts({ids.data(), 3, 2, 1, 3, plan}, 0, 1);
    for (const int parts : {1, 2, 5}) {
        std::vector<float> y(12, 7), rest(6);
        WeighRowsArgs args{x.data(), weights.data(), plan, 3, 2, 2, 3, y.data(), rest.data()};
        test::RunParts(WeighRows, args, parts);
        EXPECT_EQ(y, (std::vector<float>{0.5f, 1, -5, -6, 6, 8, 7, 7, 7, 7, 7, 7}));
        EXPECT_EQ(rest, std::vector<float>(6, 1));
    }
}

}  // namespace
}  // namespace weft::kernels
