// RMS norm, RoPE, SwiGLU and add against their formulas in double, over random shapes, strides and
// parts, on every instruction set; a row's bits depend only on the row.
#include <gtest/gtest.h>

#include <cstring>

#include "support/kernel_levels.h"

namespace weft::kernels::test {
namespace {

using dense::AddArgs;
using dense::AddBiasArgs;
using dense::GluArgs;
using dense::RmsNormArgs;
using dense::RopeArgs;
using dense::ScaleArgs;

constexpr float kUntouched = 12345.0f;

bool OpsRowsSameBits(const float* a, const float* b, int64_t count) {
    return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

// A [rows, cols] matrix with space after each row that must not be written.
struct Matrix {
    Matrix(Random& random, int64_t row_count, int64_t col_count, float deviation = 1)
        : rows(row_count), cols(col_count), stride(col_count + random.Int(0, 9)) {
        values = random.Normals(rows * stride, deviation);
        for (int64_t row = 0; row < rows; ++row)
            std::fill(Row(row) + cols, Row(row) + stride, kUntouched);
    }
    dense::Matrix View() { return {values.data(), stride}; }
    float* Row(int64_t row) { return values.data() + row * stride; }
    const float* Row(int64_t row) const { return values.data() + row * stride; }
    bool Intact() const {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t i = cols; i < stride; ++i) {
                if (Row(row)[i] != kUntouched) return false;
            }
        }
        return true;
    }
    int64_t rows, cols, stride;
    std::vector<float> values;
};

TEST(OpsRmsNorm, EqualsTheFormula) {
    for (const Ops& ops : OpLevels()) {
        Random random(11);
        for (int number = 0; number < 200; ++number) {
            const int64_t group = random.Pick<int64_t>({random.Int(1, 300), 64, 128, 576, 2048});
            const int64_t groups = random.Pick<int64_t>({1, 1, random.Int(1, 6)});
            const float deviation = random.Pick({1.0f, 1e-3f, 1e-20f, 1e15f});
            Matrix x(random, random.Int(1, 5), group * groups, deviation);
            Matrix y(random, x.rows, x.cols);
            const std::vector<float> weight = random.Normals(group);
            RmsNormArgs args{x.View(), weight.data(), 1e-5f, x.rows, x.cols, group, y.View()};
            RunParts(ops.rms_norm, args, static_cast<int>(random.Int(1, 5)));
            ASSERT_TRUE(y.Intact()) << ops.name;
            // n roundings in the sum, halved by the root, and six more.
            const double bound = (static_cast<double>(group) / 2 + 8) * kUlp;
            for (int64_t row = 0; row < x.rows; ++row) {
                double squares = 0;
                for (int64_t i = 0; i < x.cols; ++i) {
                    for (int64_t k = i; i % group == 0 && k < i + group; ++k) {
                        squares = (k == i ? 0 : squares) + double{x.Row(row)[k]} * x.Row(row)[k];
                    }
                    const double expected = x.Row(row)[i] /
                                            std::sqrt(squares / double(group) + 1e-5f) *
                                            weight[static_cast<size_t>(i % group)];
                    ASSERT_LE(std::fabs(y.Row(row)[i] - expected),
                              std::fabs(expected) * bound + 1e-44)
                        << ops.name << " group " << group << " deviation " << deviation;
                }
            }
            Matrix alone(random, x.rows, x.cols);
            for (int64_t row = 0; row < x.rows; ++row) {
                RmsNormArgs one = args;
                one.x.data = x.Row(row), one.y.data = alone.Row(row), one.rows = 1;
                RunParts(ops.rms_norm, one, 3);
                ASSERT_TRUE(OpsRowsSameBits(alone.Row(row), y.Row(row), x.cols)) << ops.name;
            }
            args.y = x.View();  // in place
            RunParts(ops.rms_norm, args, 2);
            for (int64_t row = 0; row < x.rows; ++row) {
                ASSERT_TRUE(OpsRowsSameBits(x.Row(row), y.Row(row), x.cols)) << ops.name;
            }
        }
    }
}

// LayerNorm. The mean has an error of `group` roundings of the mean size, multiplied by the scale.
TEST(OpsRmsNorm, SubtractsTheMean) {
    for (const Ops& ops : OpLevels()) {
        Random random(23);
        for (int number = 0; number < 100; ++number) {
            const int64_t group = random.Pick<int64_t>({random.Int(1, 300), 64, 576});
            Matrix x(random, random.Int(1, 5), group * random.Int(1, 3));
            for (float& value : x.values) value += value == kUntouched ? 0.0f : 3.0f;
            Matrix y(random, x.rows, x.cols);
            const std::vector<float> weight = random.Normals(group);
            RmsNormArgs args{x.View(), weight.data(), 1e-5f, x.rows, x.cols, group, y.View()};
            args.centered = true;
            RunParts(ops.rms_norm, args, static_cast<int>(random.Int(1, 5)));
            ASSERT_TRUE(y.Intact()) << ops.name;
            const double roundings = (static_cast<double>(group) + 12) * kUlp;
            for (int64_t unit = 0; unit < x.rows * x.cols; unit += group) {
                const float* from = x.Row(unit / x.cols) + unit % x.cols;
                const float* got = y.Row(unit / x.cols) + unit % x.cols;
                double mean = 0, size = 0, squares = 0;
                for (int64_t i = 0; i < group; ++i) mean += from[i] / double(group);
                for (int64_t i = 0; i < group; ++i) size += std::fabs(from[i]) / double(group);
                for (int64_t i = 0; i < group; ++i) squares += std::pow(from[i] - mean, 2);
                const double scale = 1 / std::sqrt(squares / double(group) + 1e-5f);
                for (int64_t i = 0; i < group; ++i) {
                    const double by = scale * weight[static_cast<size_t>(i)];
                    const double apart = from[i] - mean;
                    // The scale changes with the mean's error in proportion to its part of the
                    // deviations.
                    const double bound =
                        roundings * std::fabs(by) * (std::fabs(apart) * (1 + size * scale) + size);
                    ASSERT_LE(std::fabs(got[i] - apart * by), bound)
                        << ops.name << " group " << group;
                }
            }
            args.y = x.View();  // in place
            RunParts(ops.rms_norm, args, 2);
            for (int64_t row = 0; row < x.rows; ++row) {
                ASSERT_TRUE(OpsRowsSameBits(x.Row(row), y.Row(row), x.cols)) << ops.name;
            }
        }
    }
}

// Part of a row, given the sum of squares of the whole row.
TEST(OpsRmsNorm, NoWeightIsAWeightOfOnes) {
    for (const Ops& ops : OpLevels()) {
        Random random(19);
        for (int number = 0; number < 50; ++number) {
            const int64_t group = random.Int(1, 300), groups = random.Int(1, 4);
            Matrix x(random, random.Int(1, 5), group * groups), y(random, x.rows, x.cols);
            Matrix with = y;
            const std::vector<float> ones(static_cast<size_t>(group), 1.0f);
            RmsNormArgs args{x.View(), nullptr, 1e-5f, x.rows, x.cols, group, y.View()};
            RunParts(ops.rms_norm, args, static_cast<int>(random.Int(1, 5)));
            args.weight = ones.data();
            args.y = with.View();
            RunParts(ops.rms_norm, args, 1);
            ASSERT_TRUE(OpsRowsSameBits(with.values.data(), y.values.data(), y.rows * y.stride))
                << ops.name;
        }
    }
}

TEST(OpsRmsNorm, UsesTheGivenSumOfSquares) {
    for (const Ops& ops : OpLevels()) {
        Random random(17);
        for (int number = 0; number < 100; ++number) {
            const int64_t cols = random.Int(1, 200), whole = cols + random.Int(0, 300);
            Matrix x(random, random.Int(1, 5), cols), y(random, x.rows, cols);
            const std::vector<float> weight = random.Normals(cols);
            const int64_t stride = random.Int(1, 3);
            std::vector<float> squares = random.Normals(x.rows * stride);
            for (float& square : squares) square = std::fabs(square) * static_cast<float>(whole);
            RmsNormArgs args{x.View(), weight.data(), 1e-5f, x.rows, x.cols, cols, y.View()};
            args.squares = squares.data();
            args.squares_stride = stride;
            args.whole = whole;
            RunParts(ops.rms_norm, args, static_cast<int>(random.Int(1, 5)));
            ASSERT_TRUE(y.Intact()) << ops.name;
            for (int64_t unit = 0; unit < x.rows * cols; ++unit) {
                const int64_t row = unit / cols, i = unit % cols;
                const double mean = double(squares[static_cast<size_t>(row * stride)]) / whole;
                const double expected =
                    x.Row(row)[i] / std::sqrt(mean + 1e-5f) * weight[static_cast<size_t>(i)];
                ASSERT_LE(std::fabs(y.Row(row)[i] - expected), std::fabs(expected) * 8 * kUlp)
                    << ops.name;
            }
        }
    }
}

TEST(OpsSumSquares, AddsInDouble) {
    Random random(18);
    for (int number = 0; number < 100; ++number) {
        Matrix x(random, random.Int(1, 5), random.Int(0, 100), random.Pick({1.0f, 1e-15f, 1e15f}));
        const int64_t stride = random.Int(1, 3);
        std::vector<float> y(static_cast<size_t>(x.rows * stride), kUntouched);
        std::vector<double> wide(y.size(), kUntouched);
        SumSquaresArgs args{x.values.data(), x.stride, x.rows, x.cols, y.data(), nullptr, stride};
        RunParts(reference::SumSquares, args, static_cast<int>(random.Int(1, 5)));
        args.y = nullptr;
        args.wide = wide.data();
        RunParts(reference::SumSquares, args, static_cast<int>(random.Int(1, 5)));
        for (int64_t i = 0; i < x.rows * stride; ++i) {
            const auto at = static_cast<size_t>(i);
            if (i % stride != 0) {
                ASSERT_EQ(y[at], kUntouched);
                ASSERT_EQ(wide[at], kUntouched);
                continue;
            }
            long double sum = 0;
            for (int64_t j = 0; j < x.cols; ++j) {
                const long double value = x.Row(i / stride)[j];
                sum += value * value;
            }
            ASSERT_LE(std::fabs(wide[at] - double(sum)), double(sum) * 1e-14);
            ASSERT_EQ(y[at], static_cast<float>(wide[at]));
        }
    }
}

TEST(OpsRope, TableIsCosAndSinOfTheAngle) {
    for (const Ops& ops : OpLevels()) {
        Random random(12);
        for (int number = 0; number < 100; ++number) {
            const int64_t rows = random.Int(1, 20), pairs = random.Int(1, 70);
            std::vector<int32_t> positions(static_cast<size_t>(rows));
            const auto most = random.Pick<int64_t>({16, 8192, 1 << 20, 0x7fffffff});
            for (int32_t& position : positions)
                position = static_cast<int32_t>(random.Int(0, most));
            std::vector<float> frequency(static_cast<size_t>(pairs));
            for (int64_t i = 0; i < pairs; ++i) {
                frequency[static_cast<size_t>(i)] =
                    static_cast<float>(std::pow(1e5, -static_cast<double>(i) / double(pairs)));
            }
            std::vector<float> out(static_cast<size_t>(rows * pairs * 2), kUntouched);
            const float magnitude = random.Pick({1.0f, 1.0f, 1.1902f, 0.5f});
            RunParts(ops.rope_table,
                     RopeTableArgs{positions.data(), frequency.data(), rows, 2 * pairs, out.data(),
                                   magnitude},
                     static_cast<int>(random.Int(1, 5)));
            for (int64_t row = 0; row < rows; ++row) {
                for (int64_t i = 0; i < pairs; ++i) {
                    const double angle = double(positions[static_cast<size_t>(row)]) *
                                         double(frequency[static_cast<size_t>(i)]);
                    const auto at = static_cast<size_t>(row * 2 * pairs + i);
                    const double sine = out[at + static_cast<size_t>(pairs)];
                    ASSERT_LE(std::fabs(out[at] - magnitude * std::cos(angle)), 2 * kUlp)
                        << ops.name << angle;
                    ASSERT_LE(std::fabs(sine - magnitude * std::sin(angle)), 2 * kUlp)
                        << ops.name << angle;
                }
            }
        }
    }
}

TEST(OpsRope, RotatesPairsAndInverts) {
    for (const Ops& ops : OpLevels()) {
        Random random(13);
        for (int number = 0; number < 200; ++number) {
            const int64_t rows = random.Int(1, 6), heads = random.Int(1, 5);
            const int64_t pairs = random.Pick<int64_t>({32, 64, 16, random.Int(1, 70)});
            const int64_t head_dim = 2 * pairs + random.Pick<int64_t>({0, 0, random.Int(0, 40)});
            const bool neighbours = random.Int(0, 1) == 1;
            Matrix x(random, rows, heads * head_dim), y(random, rows, heads * head_dim);
            std::vector<float> table(static_cast<size_t>(rows * pairs * 2));
            for (int64_t i = 0; i < rows * pairs; ++i) {
                const double angle = random.Normal(10);
                const auto at = static_cast<size_t>(i / pairs * 2 * pairs + i % pairs);
                table[at] = static_cast<float>(std::cos(angle));
                table[at + static_cast<size_t>(pairs)] = static_cast<float>(std::sin(angle));
            }
            RopeArgs args{x.View(), table.data(), 1,         neighbours, rows,
                          heads,    head_dim,     2 * pairs, y.View()};
            RunParts(ops.rope, args, static_cast<int>(random.Int(1, 5)));
            ASSERT_TRUE(y.Intact()) << ops.name;
            for (int64_t unit = 0; unit < rows * heads * head_dim; ++unit) {
                const int64_t row = unit / (heads * head_dim), column = unit % (heads * head_dim);
                const int64_t d = column % head_dim;
                const float* from = x.Row(row) + column - d;
                double expected = from[d], size = 0;
                if (d < 2 * pairs) {
                    const int64_t pair = neighbours ? d / 2 : d % pairs;
                    const bool second = neighbours ? d % 2 == 1 : d >= pairs;
                    const double a = from[neighbours ? 2 * pair : pair];
                    const double b = from[neighbours ? 2 * pair + 1 : pair + pairs];
                    const double c = table[static_cast<size_t>(row * 2 * pairs + pair)];
                    const double s = table[static_cast<size_t>(row * 2 * pairs + pairs + pair)];
                    expected = second ? b * c + a * s : a * c - b * s;
                    size = std::fabs(a) + std::fabs(b);
                }
                ASSERT_LE(std::fabs(y.Row(row)[column] - expected), 3 * kUlp * size)
                    << ops.name << " pairs " << pairs << " dim " << d;
            }
            // In place, and one row alone: the same bits. Then rotate back.
            Matrix copy = x;
            for (int64_t row = 0; row < rows; ++row) {
                RopeArgs one = args;
                one.x.data = one.y.data = copy.Row(row);
                one.cos_sin = table.data() + row * 2 * pairs;
                one.rows = 1;
                RunParts(ops.rope, one, 2);
                ASSERT_TRUE(OpsRowsSameBits(copy.Row(row), y.Row(row), x.cols)) << ops.name;
                one.sign = -1;
                RunParts(ops.rope, one, 1);
                for (int64_t i = 0; i < x.cols; ++i) {
                    ASSERT_LE(std::fabs(copy.Row(row)[i] - x.Row(row)[i]), 1e-5) << ops.name;
                }
            }
        }
    }
}

// `size`: the factor of an intermediate rounding error.
double Gated(Activation activation, double gate, double up, double* size) {
    double slope =
        0;  // relative, for the sigmoid's argument u: an error of u changes e^-u by the same factor
    double u = gate;
    if (activation == Activation::kGeluTanh) {
        u = 2 * std::sqrt(2 / 3.14159265358979323846) * (gate + 0.044715 * gate * gate * gate);
        slope = std::fabs(u);
    }
    if (activation == Activation::kClampedSilu) {
        gate = std::min(gate, 7.0);
        up = std::clamp(up, -7.0, 7.0) + 1;
        u = 1.702 * gate;
        slope = std::fabs(u);
        *size = std::fabs(gate) * 8;  // up + 1 may cancel
    }
    const double expected = gate / (1 + std::exp(-u)) * up;
    if (activation != Activation::kClampedSilu) *size = 0;
    *size = *size / (1 + std::exp(-u)) * (1 + slope) + std::fabs(expected) * (1 + slope);
    return expected;
}

TEST(OpsGlu, EqualsTheFormula) {
    for (const Ops& ops : OpLevels()) {
        Random random(14);
        for (int number = 0; number < 200; ++number) {
            const int64_t rows = random.Int(1, 5);
            const int64_t cols = random.Pick<int64_t>({random.Int(1, 100), 1536, 640});
            const float deviation = random.Pick({1.0f, 1e-6f, 1e-39f, 30.0f, 300.0f, 1e20f});
            Matrix gate(random, rows, cols, deviation), up(random, rows, cols);
            Matrix out(random, rows, cols);
            const auto activation =
                random.Pick({Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSilu});
            GluArgs args{gate.View(), up.View(), rows, cols, out.View(), activation};
            RunParts(ops.glu, args, static_cast<int>(random.Int(1, 5)));
            ASSERT_TRUE(out.Intact()) << ops.name;
            for (int64_t unit = 0; unit < rows * cols; ++unit) {
                const int64_t row = unit / cols, column = unit % cols;
                const double a = gate.Row(row)[column], b = up.Row(row)[column];
                double size = 0;
                const double expected = Gated(activation, a, b, &size);
                // exp is accurate to 2 ulp; a float's exp overflows above 88.7, where all results
                // are near 0.
                ASSERT_LE(std::fabs(out.Row(row)[column] - expected),
                          size * 10 * kUlp + (std::fabs(b) + 1) * 1e-36)
                    << ops.name << " gate " << a << " up " << b;
            }
            Matrix again = out;
            args.out = again.View();
            RunParts(ops.glu, args, 7);
            ASSERT_TRUE(OpsRowsSameBits(again.values.data(), out.values.data(), rows * out.stride));
            for (int64_t row = 0; row < rows; ++row) {
                GluArgs one{{gate.Row(row), cols},  {up.Row(row), cols}, 1, cols,
                            {again.Row(row), cols}, activation};
                RunParts(ops.glu, one, 2);
            }
            ASSERT_TRUE(OpsRowsSameBits(again.values.data(), out.values.data(), rows * out.stride));
        }
    }
}

TEST(OpsGlu, ExtremeInputsDoNotGiveNan) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<float> gate = {0.0f,      -0.0f,   88.0f,  89.0f,   1e4f,  3e38f,
                                     kInfinity, -88.0f,  -89.0f, -104.0f, -1e4f, -3e38f,
                                     1e-45f,    -1e-45f, 1e-38f, -1e-38f};
    const std::vector<float> up(gate.size(), 1.0f);
    for (const Ops& ops : OpLevels()) {
        for (size_t count = 1; count <= gate.size(); ++count) {
            std::vector<float> out(gate.size(), kUntouched);
            const auto cols = static_cast<int64_t>(count);
            RunParts(ops.glu, GluArgs{{gate.data(), 0}, {up.data(), 0}, 1, cols, {out.data(), 0}},
                     1);
            for (size_t i = 0; i < gate.size(); ++i) {
                if (i >= count) {
                    ASSERT_EQ(out[i], kUntouched) << ops.name;
                } else if (gate[i] >= 88) {
                    ASSERT_EQ(out[i], gate[i]) << ops.name;
                } else {
                    const double expected = gate[i] / (1 + std::exp(-double{gate[i]}));
                    ASSERT_LE(std::fabs(out[i] - expected), 1e-36) << ops.name << " " << gate[i];
                }
            }
        }
        float out = 0;
        const float nan = std::nanf("");
        RunParts(ops.glu, GluArgs{{&nan, 0}, {up.data(), 0}, 1, 1, {&out, 0}}, 1);
        EXPECT_TRUE(std::isnan(out)) << ops.name << ": a NaN must stay visible";
    }
}

TEST(OpsMaps, BiasScaleAndSoftCapEqualTheirFormulas) {
    for (const Ops& ops : OpLevels()) {
        Random random(16);
        for (int number = 0; number < 200; ++number) {
            const int64_t rows = random.Int(1, 5), cols = random.Int(1, 100);
            const auto parts = static_cast<int>(random.Int(1, 5));
            const float deviation = random.Pick({1.0f, 30.0f, 1e-6f, 1e-39f, 1e20f});
            const std::vector<float> x = random.Normals(rows * cols, deviation);
            const std::vector<float> bias = random.Normals(cols);
            const float cap = random.Pick({30.0f, 50.0f, 0.5f});
            std::vector<float> biased = x, scaled = x, capped = x, alone(x.size() + 1, kUntouched);
            RunParts(ops.add_bias,
                     AddBiasArgs{{x.data(), cols}, bias.data(), rows, cols, {biased.data(), cols}},
                     parts);
            RunParts(ops.scale, ScaleArgs{{x.data(), cols}, rows, cols, cap, {scaled.data(), cols}},
                     parts);
            RunParts(ops.soft_cap, SoftCapArgs{capped.data(), capped.data(), rows, cols, cap},
                     parts);
            for (int64_t row = 0; row < rows; ++row) {
                const auto at = row * cols;
                RunParts(ops.soft_cap, SoftCapArgs{x.data() + at, alone.data() + at, 1, cols, cap},
                         1);
            }
            ASSERT_EQ(alone.back(), kUntouched) << ops.name;
            ASSERT_TRUE(OpsRowsSameBits(alone.data(), capped.data(), rows * cols)) << ops.name;
            for (size_t i = 0; i < x.size(); ++i) {
                ASSERT_EQ(biased[i], x[i] + bias[i % static_cast<size_t>(cols)]) << ops.name;
                ASSERT_EQ(scaled[i], cap * x[i]) << ops.name;
                const double expected = cap * std::tanh(double{x[i]} / cap);
                // A denormal quotient has an error of half the smallest float.
                ASSERT_LE(std::fabs(capped[i] - expected),
                          std::fabs(expected) * 8 * kUlp + (cap + 1) * 1.5e-45)
                    << ops.name << " " << x[i] << " cap " << cap;
            }
        }
    }
}

AddArgs SumOf(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& y,
              int64_t count) {
    return {{a.data(), count}, {b.data(), count}, 1, count, {y.data(), count}};
}

TEST(OpsAdd, AddsAnyCountInPlaceOrNot) {
    for (const Ops& ops : OpLevels()) {
        Random random(15);
        for (int number = 0; number < 200; ++number) {
            const int64_t count = random.Int(0, 200);
            const std::vector<float> a = random.Normals(count + 1), b = random.Normals(count + 1);
            std::vector<float> out(a.size(), kUntouched), in_place = a;
            const auto parts = static_cast<int>(random.Int(1, 5));
            RunParts(ops.add, SumOf(a, b, out, count), parts);
            RunParts(ops.add, SumOf(in_place, b, in_place, count), parts);
            for (size_t i = 0; i < static_cast<size_t>(count); ++i) ASSERT_EQ(out[i], a[i] + b[i]);
            ASSERT_EQ(out.back(), kUntouched) << ops.name;
            ASSERT_TRUE(OpsRowsSameBits(in_place.data(), out.data(), count)) << ops.name;
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
