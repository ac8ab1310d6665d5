// Row ops on a GPU against kernels/reference, over odd sizes and 1 to 70 rows.
//
// Bounds: u = 2^-24 is one rounding. The error of GLSL's exp is (3 + 2 |x|) 2^-23 of its result,
// that of its division and square root 5u; the reference's errors are smaller.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/dense/experts.h"
#include "kernels/reference/ops.h"
#include "kernels/sparse.h"
#include "kernels/ungated.h"
#include "support/kernel_levels.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::test::kUlp;
using kernels::test::Random;
using program::kOutputs;
using program::kTokens;
using program::ValueId;
using test::BenchEmitter;
using test::StepContents;

constexpr std::array<int32_t, 6> kRowCounts = {1, 2, 8, 9, 33, 70};

// bound(i): the bound of |got - expected| of element i.
void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected,
                 const std::function<double(size_t)>& bound, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(double{got[i]} - double{expected[i]});
        ASSERT_FALSE(!(error <= bound(i)))
            << what << ", element " << i << ": " << got[i] << ", expected " << expected[i]
            << ", bound " << bound(i);
    }
}

kernels::Kernels Reference() {
    return kernels::reference::Table();
}
StepShape ShapeOf(int32_t rows) {
    return {.rows = rows, .outputs = 1, .positions = 64};
}
std::vector<float> Empty(size_t count) {
    return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}
kernels::dense::ConstMatrix MatrixOf(const std::vector<float>& values, int64_t cols) {
    return {values.data(), cols};
}
kernels::dense::Matrix MatrixOf(std::vector<float>& values, int64_t cols) {
    return {values.data(), cols};
}

std::string Sizes(int64_t rows, int64_t cols) {
    return std::to_string(rows) + " rows of " + std::to_string(cols);
}

// y = f(inputs) on the device, for activations of `cols` columns.
template <typename Attributes>
void RunMapOn(BenchEmitter& e, const Attributes& a, const std::vector<ValueId>& inputs, ValueId y,
              std::vector<float>& got) {
    const Status lowered = e.Lower(a, inputs, {y});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    got = e.Floats(y);
}

TEST(VulkanRows, ElementByElement) {
    WEFT_VULKAN(device);
    Random random(1);
    for (const int32_t rows : kRowCounts) {
        const int64_t cols = random.Pick<int64_t>({1, 3, 64, 257, 576});
        const auto count = static_cast<size_t>(rows * cols);
        BenchEmitter e(device, ShapeOf(rows));
        const std::vector<float> a = random.Normals(rows * cols, 3),
                                 b = random.Normals(rows * cols, 3);
        const std::vector<float> bias = random.Normals(cols), gate = random.Normals(rows, 3);
        const ValueId in_a = e.AddFloats({kTokens, cols}, a),
                      in_b = e.AddFloats({kTokens, cols}, b);
        const ValueId in_bias = e.AddVector(bias), in_gate = e.AddFloats({kTokens, 1}, gate);
        const auto y = [&] { return e.AddFloats({kTokens, cols}); };
        std::vector<float> got, expected = Empty(count);
        const auto exact = [](size_t) { return 0.0; };

        RunMapOn(e, program::Add{}, {in_a, in_b}, y(), got);
        Reference().add(
            {MatrixOf(a, cols), MatrixOf(b, cols), rows, cols, MatrixOf(expected, cols)}, 0, 1);
        ExpectClose(got, expected, exact, "add, " + Sizes(rows, cols));

        RunMapOn(e, program::AddBias{}, {in_a, in_bias}, y(), got);
        Reference().add_bias({MatrixOf(a, cols), bias.data(), rows, cols, MatrixOf(expected, cols)},
                             0, 1);
        ExpectClose(got, expected, exact, "add_bias, " + Sizes(rows, cols));

        RunMapOn(e, program::Scale{0.37f}, {in_a}, y(), got);
        Reference().scale({MatrixOf(a, cols), rows, cols, 0.37f, MatrixOf(expected, cols)}, 0, 1);
        ExpectClose(got, expected, exact, "scale, " + Sizes(rows, cols));

        // The argument's rounding and division change tanh by less than 6u of the result, exp and
        // the last division by less than 20u.
        RunMapOn(e, program::SoftCap{5}, {in_a}, y(), got);
        Reference().soft_cap({a.data(), expected.data(), rows, cols, 5}, 0, 1);
        ExpectClose(
            got, expected, [&](size_t i) { return 30 * kUlp * std::fabs(expected[i]); },
            "soft_cap, " + Sizes(rows, cols));

        RunMapOn(e, program::GateRows{}, {in_a, in_gate}, y(), got);
        for (size_t i = 0; i < count; ++i) {
            const double g = gate[i / static_cast<size_t>(cols)];
            expected[i] = static_cast<float>(a[i] / (1 + std::exp(-g)));
        }
        ExpectClose(
            got, expected, [&](size_t i) { return 60 * kUlp * std::fabs(expected[i]); },
            "gate_rows, " + Sizes(rows, cols));
    }
}

// The logarithm is off by 3 roundings of its part of the factor; the sum and the product by one
// each, and the reference's factor by one.
TEST(VulkanRows, ScaleByPosition) {
    WEFT_VULKAN(device);
    Random random(9);
    for (const int32_t rows : kRowCounts) {
        const int64_t cols = random.Pick<int64_t>({1, 3, 64, 257, 576});
        BenchEmitter e(device, ShapeOf(rows));
        const std::vector<float> x = random.Normals(rows * cols, 3);
        const Temperature temperature{0.3f, 5, 1};
        StepContents step;
        for (int32_t row = 0; row < rows; ++row) step.positions.push_back(row * row * 7);
        e.SetStep(step);
        std::vector<float> got, expected = Empty(x.size());
        RunMapOn(e, program::ScaleByPosition{temperature},
                 {e.AddFloats({kTokens, cols}, x), e.AddInts({kTokens})},
                 e.AddFloats({kTokens, cols}), got);
        Reference().scale({MatrixOf(x, cols), rows, cols, 1.0f, MatrixOf(expected, cols),
                           step.positions.data(), temperature},
                          0, 1);
        ExpectClose(
            got, expected, [&](size_t i) { return 6 * kUlp * std::fabs(expected[i]); },
            "scale_by_position, " + Sizes(rows, cols));
    }
}

// The logarithm is off by 3 roundings, the product and the sum by one each; the reference's factor
// by as much. The terms may cancel.
TEST(VulkanRows, ScaleHeads) {
    WEFT_VULKAN(device);
    Random random(10);
    for (const int32_t rows : kRowCounts) {
        const int64_t heads = random.Int(1, 5), dim = random.Pick<int64_t>({1, 3, 64, 130});
        BenchEmitter e(device, ShapeOf(rows));
        const std::vector<float> x = random.Normals(rows * heads * dim, 3);
        const std::vector<float> slope = random.Normals(heads), offset = random.Normals(heads);
        StepContents step;
        for (int32_t row = 0; row < rows; ++row) step.positions.push_back(row * row * 7);
        e.SetStep(step);
        std::vector<float> got, expected = Empty(x.size()), largest = Empty(x.size());
        RunMapOn(e, program::ScaleHeads{},
                 {e.AddFloats({kTokens, heads * dim}, x), e.AddInts({kTokens}),
                  e.AddFloats({heads}, slope), e.AddFloats({heads}, offset)},
                 e.AddFloats({kTokens, heads * dim}), got);
        kernels::ScaleHeads({x.data(), step.positions.data(), slope.data(), offset.data(), rows,
                             heads * dim, heads, expected.data()},
                            0, 1);
        for (size_t i = 0; i < x.size(); ++i) {
            const size_t head = i % static_cast<size_t>(heads * dim) / static_cast<size_t>(dim);
            const auto row = i / static_cast<size_t>(heads * dim);
            const float grown = std::log(static_cast<float>(step.positions[row]) + 1.0f);
            largest[i] =
                std::fabs(x[i]) * (std::fabs(slope[head]) * grown + std::fabs(offset[head]));
        }
        ExpectClose(
            got, expected, [&](size_t i) { return 10 * kUlp * largest[i]; },
            "scale_heads, " + Sizes(rows, heads * dim));
    }
}

// exp of a gate of 20 is off by 86 u.
TEST(VulkanRows, GatesByHead) {
    WEFT_VULKAN(device);
    Random random(8);
    for (const int32_t rows : kRowCounts) {
        const int64_t cols = random.Pick<int64_t>({1, 3, 64, 257}), gates = 3;
        BenchEmitter e(device, ShapeOf(rows));
        const std::vector<float> x = random.Normals(rows * gates * cols);
        const std::vector<float> gate = random.Normals(rows * gates, 4);
        const ValueId in = e.AddFloats({kTokens, gates * cols}, x);
        const ValueId in_gate = e.AddFloats({kTokens, gates}, gate);
        for (const auto kind : {program::RowGate::kSigmoid, program::RowGate::kSoftplus,
                                program::RowGate::kProduct}) {
            std::vector<float> got, expected = Empty(x.size());
            RunMapOn(e, program::GateRows{kind}, {in, in_gate},
                     e.AddFloats({kTokens, gates * cols}), got);
            const bool softplus = kind == program::RowGate::kSoftplus;
            kernels::dense::GateRows(kernels::KernelsFor(CpuLevel::kReference),
                                     {.x = {x.data(), cols},
                                      .gate = gate.data(),
                                      .rows = rows * gates,
                                      .cols = cols,
                                      .y = {expected.data(), cols},
                                      .softplus = softplus,
                                      .product = kind == program::RowGate::kProduct},
                                     0, 1);
            ExpectClose(
                got, expected, [&](size_t i) { return 120 * kUlp * std::fabs(expected[i]); },
                "gate_rows by head, " + Sizes(rows, cols));
        }
    }
}

TEST(VulkanRows, GluOfEveryActivation) {
    WEFT_VULKAN(device);
    Random random(2);
    for (const Activation activation :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSilu}) {
        for (const float deviation : {0.1f, 2.0f, 40.0f}) {
            const int32_t rows = random.Pick({1, 9, 33});
            const int64_t cols = 97, slots = 3;  // [T, K, n], as for experts
            BenchEmitter e(device, ShapeOf(rows));
            const std::vector<float> gate = random.Normals(rows * slots * cols, deviation);
            const std::vector<float> up = random.Normals(rows * slots * cols, deviation);
            const program::Shape shape = {kTokens, slots, cols};
            const ValueId in_gate = e.AddFloats(shape, gate), in_up = e.AddFloats(shape, up);
            std::vector<float> got, expected = Empty(gate.size());
            const float limit = activation == Activation::kSilu && rows == 9 ? 1.5f : 0.0f;
            RunMapOn(e, program::Glu{activation, limit}, {in_gate, in_up}, e.AddFloats(shape), got);
            Reference().glu({MatrixOf(gate, cols), MatrixOf(up, cols), rows * slots, cols,
                             MatrixOf(expected, cols), activation, limit},
                            0, 1);
            // The sigmoid of v is off by exp's (3 + 2 |v|) 2^-23 and a few roundings; for GELU, v
            // itself is off by a few more, each of which counts |v| times. An exp or a result below
            // 2^-126 may be 0.
            const auto bound = [&](size_t i) {
                const double g = gate[i];
                double v = std::fabs(g);
                if (activation == Activation::kClampedSilu) v *= 1.702;
                if (activation == Activation::kGeluTanh) v = 1.6 * (v + 0.045 * v * v * v);
                v = std::min(v, 88.0);  // beyond it, exp is below 2^-126
                const double lost = 0x1p-125 * std::fabs(g) * (std::fabs(double{up[i]}) + 1);
                return (30 + 12 * v) * kUlp * std::fabs(expected[i]) + lost;
            };
            ExpectClose(got, expected, bound, ActivationName(activation));
        }
    }
}

TEST(VulkanRows, ActivationsWithoutAGate) {
    WEFT_VULKAN(device);
    Random random(14);
    for (const Ungated kind : kEveryUngated) {
        for (const float deviation : {1e-7f, 0.01f, 0.5f, 3.0f}) {
            const int32_t rows = random.Pick({1, 9, 33});
            const int64_t cols = 97;
            BenchEmitter e(device, ShapeOf(rows));
            const std::vector<float> x = random.Normals(rows * cols, deviation);
            const program::Shape shape = {kTokens, cols};
            const ValueId in = e.AddFloats(shape, x);
            std::vector<float> got, expected = Empty(x.size());
            const program::Activate op{kind, {0.6f, 0.9f, 0.5f, -1e-6f}};
            RunMapOn(e, op, {in}, e.AddFloats(shape), got);
            kernels::Activate({x.data(), expected.data(), rows, cols, op.kind, op.xielu}, 0, 1);
            // As for gated units; the terms of xIELU may cancel.
            const auto bound = [&](size_t i) {
                const double a = std::fabs(x[i]), v = 1.6 * (a + 0.045 * a * a * a);
                const double terms = kind == Ungated::kXielu ? 4 * a : 0;
                return kUlp * ((30 + 12 * v) * std::fabs(expected[i]) + terms);
            };
            ExpectClose(got, expected, bound, UngatedName(kind));
        }
    }
}

TEST(VulkanRows, RmsNorm) {
    WEFT_VULKAN(device);
    Random random(3);
    for (const int32_t rows : kRowCounts) {
        for (const int64_t group : {1, 5, 32, 64, 576, 1030}) {
            const int64_t cols = group * random.Pick<int64_t>({1, 1, 3});
            const bool plain = random.Int(0, 2) == 0;
            BenchEmitter e(device, ShapeOf(rows));
            const std::vector<float> x = random.Normals(rows * cols, 2);
            const bool apart = random.Int(0, 1) == 1;
            const int64_t weights = apart ? cols : group;
            const std::vector<float> weight = random.Normals(weights);
            const ValueId in = e.AddFloats({kTokens, cols}, x), w = e.AddVector(weight);
            std::vector<float> got, expected = Empty(x.size());
            program::RmsNorm op{1e-5f, group};
            op.plain = plain;
            op.apart = apart;
            op.centered = random.Int(0, 2) == 0;
            const auto inputs = plain ? std::vector{in} : std::vector{in, w};
            RunMapOn(e, op, inputs, in, got);  // in place
            kernels::dense::RmsNormArgs args{
                MatrixOf(x, cols),       weight.data(), 1e-5f, rows, cols, group,
                MatrixOf(expected, cols)};
            if (plain) args.weight = nullptr;
            args.centered = op.centered;
            if (apart) args.cols = group;
            for (int64_t at = 0; at < (apart ? cols : 1); at += group) {
                kernels::dense::RmsNormArgs one = args;
                one.x = args.x.From(0, at), one.y = args.y.From(0, at);
                if (!plain && apart) one.weight += at;
                Reference().rms_norm(one, 0, 1);
            }
            // Each sum of squares is off by at most `group` roundings, its root by half of that.
            // Each mean is off by as much, relative to the largest magnitude in its group,
            // multiplied by the scale.
            const double part = (static_cast<double>(group) + 20) * kUlp;
            const auto bound = [&](size_t i) {
                if (!op.centered) return part * std::fabs(expected[i]);
                const auto begin = x.begin() + static_cast<int64_t>(i) / group * group;
                double mean = 0, squares = 0, most = 0;
                for (int64_t k = 0; k < group; ++k) mean += begin[k] / static_cast<double>(group);
                for (int64_t k = 0; k < group; ++k) {
                    squares += std::pow(begin[k] - mean, 2);
                    most = std::max(most, std::fabs(double{begin[k]}));
                }
                const double scale = 1 / std::sqrt(squares / static_cast<double>(group) + 1e-5);
                const double by = plain ? 1.0 : weight[i % static_cast<size_t>(weights)];
                return 2 * part * (1 + most * scale) *
                       (std::fabs(expected[i]) + std::fabs(by) * scale * most);
            };
            ExpectClose(got, expected, bound,
                        "rms_norm by " + std::to_string(group) + ", " + Sizes(rows, cols));
        }
    }
}

TEST(VulkanRows, SumsOfSquaresOfRanksNormRows) {
    WEFT_VULKAN(device);
    Random random(4);
    const int32_t rows = 9;
    const int64_t q_cols = 70, k_cols = 33, whole = 140;
    BenchEmitter e(device, ShapeOf(rows));
    const std::vector<float> q = random.Normals(rows * q_cols), k = random.Normals(rows * k_cols);
    const std::vector<float> weight = random.Normals(k_cols);
    const ValueId in_q = e.AddFloats({kTokens, q_cols}, q);
    const ValueId in_k = e.AddFloats({kTokens, k_cols}, k);
    const ValueId sums = e.AddFloats({kTokens, 2}), y = e.AddFloats({kTokens, k_cols});
    program::SumSquares sum;
    sum.columns = {{0, q_cols}, {3, 30}};
    std::vector<float> got, expected = Empty(rows * 2);
    RunMapOn(e, sum, {in_q, in_k}, sums, got);
    kernels::reference::SumSquares({q.data(), q_cols, rows, q_cols, expected.data(), nullptr, 2}, 0,
                                   1);
    kernels::reference::SumSquares(
        {k.data() + 3, k_cols, rows, 30, expected.data() + 1, nullptr, 2}, 0, 1);
    ExpectClose(
        got, expected, [&](size_t i) { return (q_cols + 2) * kUlp * expected[i]; }, "sum_squares");
    program::RmsNorm norm{1e-6f, k_cols, whole, 1};
    std::vector<float> normed, right = Empty(k.size());
    RunMapOn(e, norm, {in_k, e.AddVector(weight), sums}, y, normed);
    Reference().rms_norm({MatrixOf(k, k_cols), weight.data(), 1e-6f, rows, k_cols, k_cols,
                          MatrixOf(right, k_cols), got.data() + 1, 2, whole},
                         0, 1);
    ExpectClose(
        normed, right, [&](size_t i) { return 20 * kUlp * std::fabs(right[i]); }, "rms_norm");
}

TEST(VulkanRows, CopiesOfRowsAndColumns) {
    WEFT_VULKAN(device);
    Random random(5);
    for (const int32_t rows : kRowCounts) {
        const int64_t heads = random.Int(1, 5), head_cols = random.Int(2, 90);
        const int64_t begin = random.Int(0, head_cols - 1);
        const int64_t size = random.Int(1, head_cols - begin);
        const int32_t outputs = random.Pick({1, 5});
        BenchEmitter e(device, {.rows = rows, .outputs = outputs, .positions = 64});
        StepContents step;
        for (int32_t i = 0; i < outputs; ++i) {
            step.output_rows.push_back(static_cast<int32_t>(random.Int(0, rows - 1)));
        }
        e.SetStep(step);
        const int64_t cols = heads * head_cols;
        const std::vector<float> x = random.Normals(rows * cols);
        const ValueId in = e.AddFloats({kTokens, cols}, x),
                      ids = e.AddInts({kOutputs}, step.output_rows);
        std::vector<float> got, expected;
        RunMapOn(e, program::SelectRows{}, {in, ids}, e.AddFloats({kOutputs, cols}), got);
        for (const int32_t row : step.output_rows) {
            expected.insert(expected.end(), x.begin() + row * cols, x.begin() + (row + 1) * cols);
        }
        EXPECT_EQ(got, expected);
        RunMapOn(e, program::PickColumns{heads, begin}, {in}, e.AddFloats({kTokens, heads * size}),
                 got);
        expected.clear();
        for (int64_t head = 0; head < rows * heads; ++head) {
            const auto at = x.begin() + head * head_cols + begin;
            expected.insert(expected.end(), at, at + size);
        }
        EXPECT_EQ(got, expected);
    }
}

// Angles up to position 2^17 and beyond. The tables' entries are each off by at most u, which the
// sum of two products raises to 2 sqrt(2) u; the products and the sum round by 2u, the reference by
// u. So a cosine is off by less than 6u of the magnitude, which each input carries into the result;
// the result's own roundings are 4 more on each side.
TEST(VulkanRows, Rope) {
    WEFT_VULKAN(device);
    Random random(6);
    for (int number = 0; number < 24; ++number) {
        const int32_t rows = kRowCounts[static_cast<size_t>(number) % kRowCounts.size()];
        program::Rope op;
        op.head_dim = 2 * random.Int(1, 70);
        op.rotary_dim = number % 3 == 0 ? 2 * random.Int(1, op.head_dim / 2) : op.head_dim;
        op.neighbours = number % 2 == 0;
        op.magnitude = number % 4 == 1 ? 1.27f : 1.0f;
        for (int64_t i = 0; i < op.rotary_dim / 2; ++i) {
            op.inverse_frequency.push_back(static_cast<float>(std::pow(
                10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(op.rotary_dim))));
        }
        const int64_t heads = random.Int(1, 4), cols = heads * op.head_dim;
        const int64_t most = number % 5 == 0 ? 1 << 18 : 1 << 17;
        StepContents step;
        for (int32_t row = 0; row < rows; ++row) {
            step.positions.push_back(
                static_cast<int32_t>(row == 0 ? most - 1 : random.Int(0, most - 1)));
        }
        BenchEmitter e(device, {.rows = rows, .positions = static_cast<int32_t>(most)});
        e.SetStep(step);
        const std::vector<float> x = random.Normals(rows * cols);
        const ValueId in = e.AddFloats({kTokens, cols}, x), ids = e.AddInts({kTokens});
        std::vector<float> got, expected = Empty(x.size());
        RunMapOn(e, op, {in, ids}, number % 2 == 0 ? in : e.AddFloats({kTokens, cols}), got);
        std::vector<float> table(static_cast<size_t>(rows * op.rotary_dim));
        kernels::reference::RopeTable({step.positions.data(), op.inverse_frequency.data(), rows,
                                       op.rotary_dim, table.data(), op.magnitude},
                                      0, 1);
        Reference().rope({MatrixOf(x, cols), table.data(), 1, op.neighbours, rows, heads,
                          op.head_dim, op.rotary_dim, MatrixOf(expected, cols)},
                         0, 1);
        const auto bound = [&](size_t i) {
            const size_t begin =
                i / static_cast<size_t>(op.head_dim) * static_cast<size_t>(op.head_dim);
            const auto in_head = static_cast<int64_t>(i - begin);
            if (in_head >= op.rotary_dim) return 0.0;
            const int64_t pairs = op.rotary_dim / 2;
            const int64_t other = op.neighbours ? in_head ^ 1 : (in_head + pairs) % op.rotary_dim;
            const double both = std::fabs(x[i]) + std::fabs(x[begin + static_cast<size_t>(other)]);
            return 10 * kUlp * static_cast<double>(op.magnitude) * both;
        };
        ExpectClose(got, expected, bound, "rope " + std::to_string(number));
    }
}

// Tests of other subgroup sizes (tests.cmake) do run with them.
TEST(VulkanSubgroups, HaveTheTestedSize) {
    WEFT_VULKAN(device);
    const char* const size = std::getenv("WEFT_TEST_SUBGROUP");
    if (size == nullptr) GTEST_SKIP() << "no size is asked for";
    if (device->description().kind != gpu::Kind::kCpu) GTEST_SKIP() << "not lavapipe";
    EXPECT_EQ(device->description().subgroup, static_cast<uint32_t>(std::atoi(size)));
}

}  // namespace
}  // namespace weft::backend::on_gpu
