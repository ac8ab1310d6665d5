// Gradients of the choice of experts, the load of experts and its balance, and gates of rows, on a
// GPU against float64.
//
// Bounds: u = 2^-24. A score exp(x - most) / sum is off by (6 + 5 |x - most|) u of itself, by the
// error of its sum, which is smaller, and by 5u of the division.
#include <numeric>

#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;

struct RouterCase {
    int32_t rows;
    int64_t experts, used;
    bool sigmoid = false, renormalise = false;
};
const RouterCase kRouters[] = {
    {1, 2, 1},
    {9, 37, 4},
    {70, 128, 8, false, true},
    {33, 64, 6, true, true},
    {5, 257, 3, true, false},
};

double SigmoidOfLogit(double x) {
    return 1 / (1 + std::exp(-x));
}
Doubles ScoresOf(const std::vector<float>& logits, size_t row, size_t experts) {
    const float* x = logits.data() + row * experts;
    const double most = *std::max_element(x, x + experts);
    Doubles scores(experts);
    double sum = 0;
    for (size_t i = 0; i < experts; ++i) sum += scores[i] = std::exp(double{x[i]} - most);
    for (double& score : scores) score /= sum;
    return scores;
}
// Logits of a normal distribution with deviation 2 differ by less than 20 here.
constexpr double kScoreError = (6 + 5 * 20 + 80) * kUlp;

// A router's operands; the ids of a row are distinct.
struct RouterOperands {
    RouterOperands(const RouterCase& c, Random& random) : rows(static_cast<size_t>(c.rows)) {
        logits = random.Normals(c.rows * c.experts, 2);
        dweights = random.Normals(c.rows * c.used);
        for (size_t row = 0; row < rows; ++row) {
            std::vector<int32_t> all(static_cast<size_t>(c.experts));
            std::iota(all.begin(), all.end(), 0);
            random.Shuffle(all);
            ids.insert(ids.end(), all.begin(), all.begin() + c.used);
        }
    }
    size_t rows;
    std::vector<float> logits, dweights;
    std::vector<int32_t> ids;
};

// The gradient of sum(dweights * weights) by the quotient rule, and the sum of magnitudes of its
// terms.
struct RightRouteGrad {
    RightRouteGrad(const RouterCase& c, const RouterOperands& r, double scale) {
        const auto experts = static_cast<size_t>(c.experts), used = static_cast<size_t>(c.used);
        for (size_t row = 0; row < r.rows; ++row) {
            Doubles s = ScoresOf(r.logits, row, experts);
            for (size_t i = 0; c.sigmoid && i < experts; ++i) {
                s[i] = SigmoidOfLogit(r.logits[row * experts + i]);
            }
            double sum = 0, dot = 0, dot_size = 0;
            Doubles ds(experts), size(experts);
            for (size_t k = 0; k < used; ++k) {
                const double score = s[static_cast<size_t>(r.ids[row * used + k])];
                sum += score;
                dot += score * r.dweights[row * used + k];
                dot_size += score * std::fabs(r.dweights[row * used + k]);
            }
            for (size_t k = 0; k < used; ++k) {
                const auto e = static_cast<size_t>(r.ids[row * used + k]);
                const double dw = r.dweights[row * used + k];
                ds[e] = c.renormalise ? scale * (dw / sum - dot / (sum * sum)) : scale * dw;
                size[e] = c.renormalise ? scale * (std::fabs(dw) + dot_size / sum) / sum
                                        : scale * std::fabs(dw);
            }
            double across = 0, across_size = 0;
            for (size_t e = 0; e < experts; ++e) {
                across += s[e] * ds[e];
                across_size += s[e] * size[e];
            }
            for (size_t e = 0; e < experts; ++e) {
                grad.push_back(c.sigmoid ? s[e] * (1 - s[e]) * ds[e] : s[e] * (ds[e] - across));
                magnitude.push_back(s[e] * (size[e] + (c.sigmoid ? 0 : across_size)));
            }
        }
    }
    Doubles grad, magnitude;
};

TEST(VulkanTrainExperts, TheChoiceOfExperts) {
    WEFT_VULKAN(device);
    Random random(41);
    for (const RouterCase& c : kRouters) {
        const RouterOperands r(c, random);
        TrainEmitter e(device, TrainShape(c.rows), c.rows == 33 ? 1 : 0);
        program::RouteGrad a;
        a.forward.score = c.sigmoid ? program::GateScore::kSigmoid : program::GateScore::kSoftmax;
        a.forward.renormalise = c.renormalise;
        a.forward.scale = 1.7f;
        const ValueId y = e.Place({kTokens, c.experts}, DType::kF32);
        const ValueId dweights = e.Place({kTokens, c.used}, DType::kF32, r.dweights);
        const ValueId logits = e.Place({kTokens, c.experts}, DType::kF32, r.logits);
        const ValueId ids = e.AddInts({kTokens, c.used}, r.ids);
        EXPECT_DONE(e.Do(a, {dweights, logits, ids}, {y}));
        const RightRouteGrad right(c, r, double{a.forward.scale});
        ExpectNear(
            e.Read(y), right.grad, DType::kF32,
            [&](size_t i) { return 4 * kScoreError * right.magnitude[i]; },
            fmt::format("{} of {} experts", c.used, c.experts));
    }
}

TEST(VulkanTrainExperts, LoadsAndTheirBalance) {
    WEFT_VULKAN(device);
    Random random(42);
    for (const RouterCase& c : kRouters) {
        const RouterOperands r(c, random);
        const auto experts = static_cast<size_t>(c.experts);
        TrainEmitter e(device, TrainShape(c.rows));
        const program::Shape shape = {2, c.experts};
        const ValueId logits = e.Place({kTokens, c.experts}, DType::kF32, r.logits);
        const ValueId ids = e.AddInts({kTokens, c.used}, r.ids);
        const ValueId load = e.Place(shape, DType::kF32), both = e.Place(shape, DType::kF32);
        EXPECT_DONE(e.Do(program::RouterLoad{}, {logits, ids}, {load}));
        EXPECT_DONE(e.Do(program::RouterLoad{}, {logits, ids, load}, {both}));
        Doubles right(2 * experts), twice(2 * experts);
        for (const int32_t id : r.ids) ++right[static_cast<size_t>(id)];
        for (size_t row = 0; row < r.rows; ++row) {
            const Doubles scores = ScoresOf(r.logits, row, experts);
            for (size_t i = 0; i < experts; ++i) right[experts + i] += scores[i];
        }
        for (size_t i = 0; i < right.size(); ++i) twice[i] = 2 * right[i];
        const double part = kScoreError + c.rows * kUlp;
        const auto bound = [&](size_t i) { return i < experts ? 0 : 2 * part * right[i]; };
        ExpectNear(e.Read(load), right, DType::kF32, bound, "load");
        ExpectNear(e.Read(both), twice, DType::kF32, bound, "two loads");

        const ValueId loss = e.Place({1}, DType::kF32);
        EXPECT_DONE(e.Do(program::LoadBalance{c.used}, {load}, {loss}));
        const auto count = static_cast<double>(experts);
        const double factor = count / (double{1} * c.rows * c.rows);
        double balance = 0;
        for (size_t i = 0; i < experts; ++i) balance += factor * right[i] * right[experts + i];
        const double balanced = part + (count + 20) * kUlp;
        ExpectNear(
            e.Read(loss), {balance}, DType::kF32, [&](size_t) { return balanced * balance; },
            "load_balance");

        const ValueId dload = e.Place(shape, DType::kF32);
        const ValueId dloss = e.Place({1}, DType::kF32, {0.3f});
        const ValueId dlogits = e.Place({kTokens, c.experts}, DType::kF32);
        EXPECT_DONE(e.Do(program::LoadBalanceGrad{{c.used}}, {dloss, load}, {dload}));
        Doubles slopes(2 * experts);
        for (size_t i = 0; i < experts; ++i) slopes[experts + i] = 0.3 * factor * right[i];
        ExpectNear(
            e.Read(dload), slopes, DType::kF32, [&](size_t i) { return 20 * kUlp * slopes[i]; },
            "load_balance_grad");
        EXPECT_DONE(e.Do(program::RouterLoadGrad{}, {dload, logits}, {dlogits}));
        Doubles grad, magnitude;
        for (size_t row = 0; row < r.rows; ++row) {
            const Doubles scores = ScoresOf(r.logits, row, experts);
            double across = 0;
            for (size_t i = 0; i < experts; ++i) across += scores[i] * slopes[experts + i];
            for (size_t i = 0; i < experts; ++i) {
                grad.push_back(scores[i] * (slopes[experts + i] - across));
                magnitude.push_back(scores[i] * (slopes[experts + i] + across));
            }
        }
        ExpectNear(
            e.Read(dlogits), grad, DType::kF32,
            [&](size_t i) { return (2 * kScoreError + count * kUlp) * magnitude[i]; },
            "router_load_grad");
    }
}

// If no rows are counted, the divisor would be 0.
TEST(VulkanTrainExperts, TheBalanceOfNoRowsIsZero) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(1));
    const ValueId load = e.Place({2, 3}, DType::kF32, std::vector<float>(6, 0.0f));
    const ValueId loss = e.Place({1}, DType::kF32);
    EXPECT_DONE(e.Do(program::LoadBalance{2}, {load}, {loss}));
    EXPECT_EQ(e.Read(loss)[0], 0);
}

TEST(VulkanTrainExperts, GatesOfRows) {
    WEFT_VULKAN(device);
    Random random(43);
    struct Sizes {
        int32_t rows;
        int64_t cols, skip;
        DType dy, x, dx;
    };
    for (const Sizes& s : {Sizes{1, 1, 0, DType::kF32, DType::kF32, DType::kF32},
                           Sizes{9, 64, 0, DType::kF32, DType::kBF16, DType::kBF16},
                           Sizes{33, 1031, 1, DType::kF16, DType::kF32, DType::kF16}}) {
        TrainEmitter e(device, TrainShape(s.rows), s.skip);
        const program::Shape shape = {kTokens, s.cols};
        const auto dy = RoundedTo(s.dy, random.Normals(s.rows * s.cols));
        const auto x = RoundedTo(s.x, random.Normals(s.rows * s.cols));
        const auto gate = random.Normals(s.rows, 3);
        const ValueId in_dy = e.Place(shape, s.dy, dy), in_x = e.Place(shape, s.x, x);
        const ValueId in_gate = e.Place({kTokens, 1}, DType::kF32, gate);
        const ValueId dx = e.Place(shape, s.dx), dgate = e.Place({kTokens, 1}, DType::kF32);
        EXPECT_DONE(e.Do(program::GateRowsGrad{}, {in_dy, in_x, in_gate}, {dx, dgate}));
        Doubles right, right_gate(gate.size()), size(gate.size());
        for (size_t i = 0; i < dy.size(); ++i) {
            const size_t row = i / static_cast<size_t>(s.cols);
            const double part = SigmoidOfLogit(gate[row]);
            const double slope = part * SigmoidOfLogit(-gate[row]);
            right.push_back(dy[i] * part);
            right_gate[row] += double{dy[i]} * x[i] * slope;
            size[row] += std::fabs(double{dy[i]} * x[i] * slope);
        }
        ExpectNear(
            e.Read(dx), right, s.dx, [&](size_t i) { return 150 * kUlp * std::fabs(right[i]); },
            "dx");
        const auto cols = static_cast<double>(s.cols);
        ExpectNear(
            e.Read(dgate), right_gate, DType::kF32,
            [&](size_t i) { return (cols + 300) * kUlp * size[i]; }, "dgate");
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
