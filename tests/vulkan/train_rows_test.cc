// Row ops of training on a GPU, for every type, against float64 or, where float32 has exactly one
// right result, its bits.
//
// Bounds: u = 2^-24 is one rounding of float32. The error of GLSL's exp is (3 + 2 |x|) 2^-23 of its
// result, that of its division and square root 5u.
#include <numeric>

#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;

double SigmoidOf(double x) {
    return 1 / (1 + std::exp(-x));
}

// Sizes and types of one case: kernels that read quads, tails, and addresses that are not aligned
// to a quad.
struct RowsCase {
    int32_t rows;
    int64_t cols, skip;
    DType a, b, y;
};
const RowsCase kRowsCases[] = {
    {1, 1, 0, DType::kBF16, DType::kBF16, DType::kBF16},
    {9, 64, 0, DType::kBF16, DType::kF32, DType::kF32},
    {5, 97, 0, DType::kF32, DType::kBF16, DType::kBF16},
    {3, 64, 1, DType::kF16, DType::kF32, DType::kF16},
    {33, 255, 3, DType::kF32, DType::kF16, DType::kF16},
    {70, 1030, 0, DType::kBF16, DType::kBF16, DType::kF32},
};
std::string TextOf(const RowsCase& c) {
    return fmt::format("{} rows of {}, skip {}, {} {} {}", c.rows, c.cols, c.skip, NameOf(c.a),
                       NameOf(c.b), NameOf(c.y));
}

TEST(VulkanTrainRows, SumsAndProductsAreRoundedOnce) {
    WEFT_VULKAN(device);
    Random random(1);
    for (const RowsCase& c : kRowsCases) {
        const int64_t count = c.rows * c.cols;
        TrainEmitter e(device, TrainShape(c.rows), c.skip);
        const program::Shape shape = {kTokens, c.cols};
        const auto a = RoundedTo(c.a, random.Normals(count, 3));
        const auto b = RoundedTo(c.b, random.Normals(count, 3));
        const auto bias = random.Normals(c.cols);
        const ValueId in_a = e.Place(shape, c.a, a), in_b = e.Place(shape, c.b, b);
        const ValueId in_bias = e.Place({c.cols}, DType::kF32, bias);
        std::vector<float> expected(a.size());
        const auto expect = [&](ValueId y, DType dtype, const char* what) {
            for (float& x : expected) x = RoundedTo(dtype, x);
            EXPECT_EQ(e.Read(y), expected) << what << ", " << TextOf(c);
        };
        const ValueId y = e.Place(shape, c.y);
        EXPECT_DONE(e.Do(program::Add{}, {in_a, in_b}, {y}));
        std::ranges::transform(a, b, expected.begin(), std::plus());
        expect(y, c.y, "add");

        const ValueId with_bias = e.Place(shape, c.y);
        EXPECT_DONE(e.Do(program::AddBias{}, {in_a, in_bias}, {with_bias}));
        for (size_t i = 0; i < a.size(); ++i) {
            expected[i] = a[i] + bias[i % static_cast<size_t>(c.cols)];
        }
        expect(with_bias, c.y, "add_bias");

        EXPECT_DONE(e.Do(program::Add{}, {in_a, in_b}, {in_b}));  // in place
        std::ranges::transform(a, b, expected.begin(), std::plus());
        expect(in_b, c.b, "add in place");

        EXPECT_DONE(e.Do(program::Scale{0.37f}, {in_a}, {in_a}));
        std::ranges::transform(a, expected.begin(), [](float x) { return 0.37f * x; });
        expect(in_a, c.a, "scale in place");
    }
}

// Ties, subnormals, overflow, infinities and NaN.
TEST(VulkanTrainRows, RoundsAsTheHostDoes) {
    WEFT_VULKAN(device);
    std::vector<float> x = {0.0f,
                            -0.0f,
                            1.00390625f,
                            1.01171875f,
                            65504.0f,
                            65520.0f,
                            -65519.0f,
                            3.3895314e38f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
    Random random(2);
    for (int exponent = -40; exponent < 20; ++exponent) {
        x.push_back(std::ldexp(1 + static_cast<float>(random.Int(0, 8191)) / 8192, exponent));
        x.push_back(-std::ldexp(1 + static_cast<float>(random.Int(0, 255)) / 256, exponent));
    }
    x.push_back(std::numeric_limits<float>::quiet_NaN());
    const auto cols = static_cast<int64_t>(x.size());
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const int64_t skip : {0, 1}) {
            TrainEmitter e(device, TrainShape(1), skip);
            const ValueId wide = e.Place({kTokens, cols}, DType::kF32, x);
            const ValueId narrow = e.Place({kTokens, cols}, dtype);
            const ValueId again = e.Place({kTokens, cols}, DType::kF32);
            EXPECT_DONE(e.Do(program::Scale{1}, {wide}, {narrow}));
            EXPECT_DONE(e.Do(program::Scale{1}, {narrow}, {again}));
            const auto got = e.Read(narrow), back = e.Read(again);
            for (size_t i = 0; i < x.size(); ++i) {
                const float right = RoundedTo(dtype, x[i]);
                if (std::isnan(x[i])) {
                    EXPECT_TRUE(std::isnan(got[i]) && std::isnan(back[i])) << NameOf(dtype);
                } else {
                    EXPECT_EQ(got[i], right) << NameOf(dtype) << " of " << x[i];
                    EXPECT_EQ(back[i], right) << NameOf(dtype) << " of " << x[i];
                }
            }
        }
    }
}

TEST(VulkanTrainRows, ElementByElement) {
    WEFT_VULKAN(device);
    Random random(3);
    for (const RowsCase& c : kRowsCases) {
        const int64_t count = c.rows * c.cols;
        const auto size = static_cast<size_t>(count);
        TrainEmitter e(device, TrainShape(c.rows), c.skip);
        const program::Shape shape = {kTokens, c.cols};
        const auto a = RoundedTo(c.a, random.Normals(count, 3));
        const auto b = RoundedTo(c.b, random.Normals(count, 3));
        const auto gate = random.Normals(c.rows, 3);
        const ValueId in_a = e.Place(shape, c.a, a), in_b = e.Place(shape, c.b, b);
        const ValueId in_gate = e.Place({kTokens, 1}, DType::kF32, gate);
        const ValueId y = e.Place(shape, c.y);
        Doubles expected(size);
        const auto expect = [&](double roundings, const char* what) {
            ExpectNear(
                e.Read(y), expected, c.y,
                [&](size_t i) { return roundings * kUlp * std::fabs(expected[i]); },
                what + (", " + TextOf(c)));
        };
        // (Roundings: those of tests/vulkan/rows_test.cc.)
        EXPECT_DONE(e.Do(program::SoftCap{5}, {in_a}, {y}));
        for (size_t i = 0; i < size; ++i) expected[i] = 5 * std::tanh(double{a[i]} / 5);
        expect(30, "soft_cap");

        EXPECT_DONE(e.Do(program::GateRows{}, {in_a, in_gate}, {y}));
        for (size_t i = 0; i < size; ++i) {
            expected[i] = double{a[i]} * SigmoidOf(double{gate[i / static_cast<size_t>(c.cols)]});
        }
        expect(60, "gate_rows");

        StepContents step;
        for (int64_t row = 0; row < c.rows; ++row) {
            step.positions.push_back(static_cast<int32_t>(row * 7));
        }
        e.SetStep(step);
        EXPECT_DONE(
            e.Do(program::ScaleByPosition{{0.3f, 5, 1}}, {in_a, e.AddInts({kTokens})}, {y}));
        for (size_t i = 0; i < size; ++i) {
            const int64_t row = static_cast<int64_t>(i) / c.cols;
            const double steps = std::floor((static_cast<double>(row) * 7 + 1) / 5);
            expected[i] = double{a[i]} * (1 + double{0.3f} * std::log(1 + steps));
        }
        expect(6, "scale_by_position");

        // 4 t / (1 + t)^2 with t = exp(-2 |x / cap|): exp is off by (3 + 4 |x / cap|) 2u, which the
        // sum does not increase, and 2 |x / cap| by 8u of itself.
        EXPECT_DONE(e.Do(program::SoftCapGrad{5}, {in_b, in_a}, {y}));
        for (size_t i = 0; i < size; ++i) {
            const double slope = 1 / std::cosh(double{a[i]} / 5);
            expected[i] = double{b[i]} * slope * slope;
        }
        ExpectNear(
            e.Read(y), expected, c.y,
            [&](size_t i) {
                const double v = std::fabs(double{a[i]}) / 5;
                return (40 + 3 * 24 * v) * kUlp * std::fabs(expected[i]);
            },
            "soft_cap_grad, " + TextOf(c));
    }
}

// act(gate), its slope, and the sum of magnitudes of the slope's two terms, in float64.
struct GateUnit {
    double value, slope, parts;
};
GateUnit GateUnitOf(Activation activation, double gate) {
    if (activation == Activation::kClampedSilu) {
        const double low = std::min(gate, 7.0);
        return {low * SigmoidOf(1.702 * low), 0, 0};
    }
    double u = gate, slope = 1;
    if (activation == Activation::kGeluTanh) {
        const double root = std::sqrt(2 / 3.14159265358979323846);
        u = 2 * root * (gate + 0.044715 * gate * gate * gate);
        slope = 2 * root * (1 + 3 * 0.044715 * gate * gate);
    }
    const double s = SigmoidOf(u), rest = gate * slope * SigmoidOf(-u);
    return {gate * s, s * (1 + rest), s * (1 + std::fabs(rest))};
}
// The sigmoid of v is off by exp's (3 + 2 |v|) 2^-23 and a few roundings; for GELU, v itself is off
// by a few more, each of which counts |v| times.
double GateError(Activation activation, double gate) {
    double v = std::fabs(gate);
    if (activation == Activation::kClampedSilu) v *= 1.702;
    if (activation == Activation::kGeluTanh) v = 1.6 * (v + 0.045 * v * v * v);
    return (30 + 12 * std::min(v, 88.0)) * kUlp;  // beyond it, exp is below 2^-126
}

TEST(VulkanTrainRows, GluAndItsGradient) {
    WEFT_VULKAN(device);
    Random random(4);
    const Activation activations[] = {Activation::kSilu, Activation::kGeluTanh,
                                      Activation::kClampedSilu};
    for (size_t n = 0; n < 6; ++n) {
        const Activation activation = activations[n % 3];
        const RowsCase& c = kRowsCases[n];
        const float deviation = n < 3 ? 2.0f : 20.0f;
        const int64_t slots = 2, count = c.rows * slots * c.cols;
        const auto size = static_cast<size_t>(count);
        TrainEmitter e(device, TrainShape(c.rows), c.skip);
        const program::Shape shape = {kTokens, slots, c.cols};
        const auto gate = RoundedTo(c.a, random.Normals(count, deviation));
        const auto up = RoundedTo(c.a, random.Normals(count, deviation));
        const auto dout = RoundedTo(c.b, random.Normals(count));
        const ValueId in_gate = e.Place(shape, c.a, gate), in_up = e.Place(shape, c.a, up);
        const ValueId in_dout = e.Place(shape, c.b, dout), y = e.Place(shape, c.y);
        EXPECT_DONE(e.Do(program::Glu{activation}, {in_gate, in_up}, {y}));
        Doubles expected(size), dgate(size), dup(size);
        const bool clamped = activation == Activation::kClampedSilu;
        for (size_t i = 0; i < size; ++i) {
            const GateUnit unit = GateUnitOf(activation, gate[i]);
            const double with = clamped ? std::clamp(double{up[i]}, -7.0, 7.0) + 1 : double{up[i]};
            expected[i] = unit.value * with;
            dup[i] = double{dout[i]} * unit.value;
            dgate[i] = double{dout[i]} * double{up[i]} * unit.slope;
        }
        const auto lost = [&](size_t i) {
            return 0x1p-125 * (std::fabs(double{gate[i]}) + 1) * (std::fabs(double{up[i]}) + 1);
        };
        ExpectNear(
            e.Read(y), expected, c.y,
            [&](size_t i) {
                return GateError(activation, gate[i]) * std::fabs(expected[i]) + lost(i);
            },
            "glu, " + TextOf(c));
        if (clamped) continue;  // train_forms_test.cc
        const ValueId to_gate = e.Place(shape, c.y), to_up = e.Place(shape, c.y);
        EXPECT_DONE(
            e.Do(program::GluGrad{activation}, {in_dout, in_gate, in_up}, {to_gate, to_up}));
        ExpectNear(
            e.Read(to_up), dup, c.y,
            [&](size_t i) {
                return GateError(activation, gate[i]) * std::fabs(dup[i]) +
                       lost(i) * (1 + std::fabs(double{dout[i]}));
            },
            "dup, " + TextOf(c));
        // The slope's two terms may cancel: each has the error of a sigmoid or two.
        ExpectNear(
            e.Read(to_gate), dgate, c.y,
            [&](size_t i) {
                const double g = gate[i], both = std::fabs(double{dout[i]} * up[i]);
                return 3 * GateError(activation, g) * GateUnitOf(activation, g).parts * both +
                       lost(i) * (1 + std::fabs(double{dout[i]})) * (1 + g * g * g * g);
            },
            "dgate, " + TextOf(c));
    }
}

TEST(VulkanTrainRows, CopiesOfRowsAndColumns) {
    WEFT_VULKAN(device);
    Random random(5);
    for (const RowsCase& c : kRowsCases) {
        const int32_t outputs = c.rows / 2 + 1;
        TrainEmitter e(device, TrainShape(c.rows, outputs), c.skip);
        const auto cols = static_cast<size_t>(c.cols);
        const auto x = RoundedTo(c.a, random.Normals(c.rows * c.cols));
        const ValueId in = e.Place({kTokens, c.cols}, c.a, x);
        std::vector<int32_t> rows(static_cast<size_t>(c.rows));
        std::iota(rows.begin(), rows.end(), 0);
        random.Shuffle(rows);
        rows.resize(static_cast<size_t>(outputs));
        std::ranges::sort(rows);
        const ValueId list = e.AddInts({kOutputs}, rows);
        const ValueId selected = e.Place({kOutputs, c.cols}, c.y);
        EXPECT_DONE(e.Do(program::SelectRows{}, {in, list}, {selected}));
        std::vector<float> expected;
        for (const int32_t row : rows) {
            for (size_t i = 0; i < cols; ++i) {
                expected.push_back(RoundedTo(c.y, x[static_cast<size_t>(row) * cols + i]));
            }
        }
        EXPECT_EQ(e.Read(selected), expected) << TextOf(c);

        const ValueId back = e.Place({kTokens, c.cols}, c.b);
        EXPECT_DONE(e.Do(program::SelectRowsGrad{}, {selected, list}, {back}));
        std::vector<float> spread(x.size(), 0.0f);
        for (size_t r = 0; r < rows.size(); ++r) {
            for (size_t i = 0; i < cols; ++i) {
                spread[static_cast<size_t>(rows[r]) * cols + i] =
                    RoundedTo(c.b, expected[r * cols + i]);
            }
        }
        EXPECT_EQ(e.Read(back), spread) << TextOf(c);

        const int64_t begin = c.cols % 64 == 0 ? 16 : c.cols / 3, part = c.cols / 2 + 1 - begin / 2;
        const int64_t size = std::min(c.cols - begin, c.cols % 64 == 0 ? 32 : part);
        const ValueId piece = e.Place({kTokens, size}, c.y);
        EXPECT_DONE(e.Do(program::SliceColumns{begin}, {in}, {piece}));
        const ValueId padded = e.Place({kTokens, c.cols}, c.b);
        EXPECT_DONE(e.Do(program::PadColumns{begin}, {piece}, {padded}));
        std::vector<float> sliced, whole;
        for (size_t i = 0; i < x.size(); ++i) {
            const auto at = static_cast<int64_t>(i % cols);
            const bool inside = at >= begin && at < begin + size;
            if (inside) sliced.push_back(RoundedTo(c.y, x[i]));
            whole.push_back(inside ? RoundedTo(c.b, sliced.back()) : 0.0f);
        }
        EXPECT_EQ(e.Read(piece), sliced) << TextOf(c);
        EXPECT_EQ(e.Read(padded), whole) << TextOf(c);
    }
}

TEST(VulkanTrainRows, EmbeddingOfPlainTables) {
    WEFT_VULKAN(device);
    Random random(6);
    for (const RowsCase& c : kRowsCases) {
        const int64_t table_rows = 23, first_row = 7;
        TrainEmitter e(device, TrainShape(c.rows), c.skip);
        const auto table = RoundedTo(c.a, random.Normals(table_rows * c.cols));
        std::vector<int32_t> tokens;
        for (int32_t i = 0; i < c.rows; ++i) {
            tokens.push_back(static_cast<int32_t>(random.Int(0, first_row + table_rows + 5)));
        }
        const ValueId y = e.Place({kTokens, c.cols}, c.y);
        EXPECT_DONE(e.Do(program::Embedding{first_row},
                         {e.AddInts({kTokens}, tokens), e.Place({table_rows, c.cols}, c.a, table)},
                         {y}));
        std::vector<float> expected;
        for (const int32_t token : tokens) {
            const int64_t row = token - first_row;
            for (int64_t i = 0; i < c.cols; ++i) {
                const bool held = row >= 0 && row < table_rows;
                expected.push_back(
                    held ? RoundedTo(c.y, table[static_cast<size_t>(row * c.cols + i)]) : 0.0f);
            }
        }
        EXPECT_EQ(e.Read(y), expected) << TextOf(c);
    }
}

// Rotation and its inverse: each rounds once, and is off by the bound of rows_test.cc's Rope.
TEST(VulkanTrainRows, RopeAndItsInverse) {
    WEFT_VULKAN(device);
    Random random(7);
    struct Dims {
        int64_t head, rotary;
        bool neighbours;
    };
    const Dims dims[] = {{64, 64, false}, {64, 48, true},  {20, 8, false},
                         {64, 64, false}, {66, 66, false}, {36, 22, true},
                         {64, 32, true},  {28, 12, false}, {128, 96, false}};
    for (size_t n = 0; n < std::size(dims); ++n) {
        const RowsCase& c = kRowsCases[n % std::size(kRowsCases)];
        program::Rope op;
        op.head_dim = dims[n].head;
        op.rotary_dim = dims[n].rotary;
        op.neighbours = dims[n].neighbours;
        for (int64_t i = 0; i < op.rotary_dim / 2; ++i) {
            op.inverse_frequency.push_back(static_cast<float>(std::pow(
                10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(op.rotary_dim))));
        }
        const int64_t heads = random.Int(1, 4), cols = heads * op.head_dim;
        TrainEmitter e(device, {.rows = c.rows, .outputs = 1, .positions = 4096}, c.skip);
        StepContents step;
        for (int32_t row = 0; row < c.rows; ++row) {
            step.positions.push_back(static_cast<int32_t>(random.Int(0, 4095)));
        }
        e.SetStep(step);
        const ValueId positions = e.AddInts({kTokens}, step.positions);
        const DType dtype = n == 1 ? DType::kF16 : DType::kBF16;
        const auto x = RoundedTo(dtype, random.Normals(c.rows * cols));
        const ValueId in = e.Place({kTokens, cols}, dtype, x);
        EXPECT_DONE(e.Do(op, {in, positions}, {in}));  // in place
        const auto turned = e.Read(in);
        const int64_t pairs = op.rotary_dim / 2;
        Doubles expected(x.begin(), x.end()), other(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
            const size_t row = i / static_cast<size_t>(cols);
            const auto dim = static_cast<int64_t>(i % static_cast<size_t>(op.head_dim));
            if (dim >= op.rotary_dim) continue;
            const int64_t pair = op.neighbours ? dim / 2 : dim % pairs;
            const bool first = op.neighbours ? dim % 2 == 0 : dim < pairs;
            const int64_t apart = op.neighbours ? 1 : pairs;
            const double angle =
                step.positions[row] * double{op.inverse_frequency[static_cast<size_t>(pair)]};
            other[i] = x[i + static_cast<size_t>(first ? apart : 0) -
                         static_cast<size_t>(first ? 0 : apart)];
            expected[i] = x[i] * std::cos(angle) + (first ? -1 : 1) * other[i] * std::sin(angle);
        }
        const auto bound = [&](size_t i) {
            return 10 * kUlp * (std::fabs(double{x[i]}) + std::fabs(other[i]));
        };
        ExpectNear(turned, expected, dtype, bound, "rope " + std::to_string(n));
        op.sign = -1;
        const ValueId again = e.Place({kTokens, cols}, DType::kF32);
        EXPECT_DONE(e.Do(op, {in, positions}, {again}));
        ExpectNear(
            e.Read(again), Doubles(x.begin(), x.end()), DType::kF32,
            [&](size_t i) {
                return 2 * bound(i) + 2 * StoreError(dtype, std::fabs(x[i]) + std::fabs(other[i]));
            },
            "rope back " + std::to_string(n));
    }
}

TEST(VulkanTrainRows, ZeroesValuesOfAnyType) {
    WEFT_VULKAN(device);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
        for (const int64_t skip : {0, 1}) {
            const int64_t count = 4099;
            BenchEmitter e(device, TrainShape(1));
            const ValueId base = e.AddValues({count + 2}, dtype);
            const ValueId y = e.AddView({count}, base, skip);
            const Status lowered = e.Lower(program::Zero{}, {}, {y});
            ASSERT_TRUE(lowered.ok()) << lowered.error().message;
            EXPECT_DONE(e.Run());  // fails if it wrote out of bounds
            const auto& all = static_cast<Emitter&>(e);
            for (const std::byte byte : e.Bytes(all.All(y))) ASSERT_EQ(byte, std::byte{0});
        }
    }
}

// Norms that only inference has, of bfloat16: a mean that is subtracted, weights of each group,
// sums of squares that are given; and units with limits. As of float32, rounded.
TEST(VulkanTrainRows, NarrowTypesHaveAllFormsOfAnOp) {
    WEFT_VULKAN(device);
    Random random(5);
    const std::vector<float> values = RoundedTo(DType::kBF16, random.Normals(3 * 16));
    const std::vector<float> others = RoundedTo(DType::kBF16, random.Normals(3 * 16));
    const std::vector<float> weights = random.Normals(16), squares = {9, 4, 25};
    const auto run = [&](DType dtype, const auto& op, std::vector<std::vector<float>> more) {
        TrainEmitter e(device, TrainShape(3));
        std::vector<ValueId> inputs = {e.Place({kTokens, 16}, dtype, values)};
        for (const std::vector<float>& one : more) {
            const bool rows = one.size() > 16;
            const program::Shape shape = rows              ? program::Shape{kTokens, 16}
                                         : one.size() == 3 ? program::Shape{kTokens, 1}
                                                           : program::Shape{16};
            inputs.push_back(e.Place(shape, rows ? dtype : DType::kF32, one));
        }
        const ValueId y = e.Place({kTokens, 16}, dtype);
        const Status done = e.Do(op, inputs, {y});
        EXPECT_TRUE(done.ok()) << done.error().message;
        return e.Read(y);
    };
    const auto check = [&](const auto& op, const std::vector<std::vector<float>>& more,
                           const char* what) {
        const std::vector<float> wide = run(DType::kF32, op, more);
        const std::vector<float> narrow = run(DType::kBF16, op, more);
        const std::vector<double> expected(wide.begin(), wide.end());
        ExpectNear(
            narrow, expected, DType::kBF16,
            [&](size_t i) { return 64 * kUlp * (1 + std::fabs(expected[i])); }, what);
    };
    program::RmsNorm centered{1e-5f, 16}, apart{1e-5f, 8}, whole{1e-5f, 16, 32, 0};
    centered.centered = true;
    apart.apart = true;
    check(centered, {weights}, "centered");
    check(apart, {weights}, "apart");
    check(whole, {weights, squares}, "whole");
    program::Glu limited;
    limited.limit = 0.5f;
    check(limited, {others}, "limited");
}

TEST(VulkanTrainRows, RefuseTypesByName) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(2));
    const ValueId x = e.Place({kTokens, 8}, DType::kBF16), y = e.Place({kTokens, 8}, DType::kBF16);
    const ValueId wide = e.AddValues({kTokens, 8}, DType::kF64);
    const Status status = e.Do(program::Add{}, {x, wide}, {y});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(e.program().value(wide).name), std::string::npos)
        << status.error().message;
    program::RmsNorm norm{1e-5f, 8, 16, 0};
    const ValueId squares = e.Place({kTokens, 1}, DType::kBF16);
    const Status narrow = e.Do(norm, {x, e.Place({8}, DType::kF32), squares}, {y});
    ASSERT_FALSE(narrow.ok());
    EXPECT_NE(narrow.error().message.find(e.program().value(squares).name), std::string::npos)
        << narrow.error().message;
}

}  // namespace
}  // namespace weft::backend::on_gpu
