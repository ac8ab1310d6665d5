// The kernels of dense/update.h on every level against the same formulas in double: runs of odd
// sizes with gaps, all element types, with and without a copy, and the same bits for any number of
// parts.
#include "kernels/dense/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/typed_matrix.h"
#include "tensor/dynamic_codes.h"

namespace weft::kernels::dense {
namespace {

using test::ExpectSameInParts, test::ForLevelsAndSeeds, test::kUlp, test::Random, test::Typed,
    test::Types;

size_t At(int64_t i) {
    return static_cast<size_t>(i);
}

// ---- Sums of squares ---------------------------------------------------------------------------

// Ranges with gaps, including an empty one and one of several blocks.
std::vector<ElementRange> SomeRanges(Random& random, int64_t* count) {
    std::vector<ElementRange> ranges;
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
        const int64_t begin = at + random.Int(0, 3);
        const int64_t size = i == 1 ? kSquaresBlock + random.Int(-1, 3000) : random.Int(0, 700);
        ranges.push_back({begin, begin + size});
        at = begin + size;
    }
    *count = at + 3;
    return ranges;
}
double SquaresOf(const Typed& x, const std::vector<ElementRange>& ranges) {
    double sum = 0;
    for (const ElementRange& range : ranges) {
        for (int64_t i = range.begin; i < range.end; ++i) sum += std::pow(double{x.At(0, i)}, 2);
    }
    return sum;
}

TEST(Update, BlocksOfSquares) {
    const ElementRange ranges[] = {
        {5, 5}, {7, 8}, {10, 10 + kSquaresBlock}, {0, 3 * kSquaresBlock + 1}};
    EXPECT_EQ(SquaresBlocks(ranges, 0), 0);
    EXPECT_EQ(SquaresBlocks(ranges, 1), 0);
    EXPECT_EQ(SquaresBlocks(ranges, 4), 1 + 1 + 4);
}

TEST(Update, SquaresInFloat64AndInPairs) {
    for (uint32_t seed = 0; seed < 6; ++seed) {
        SCOPED_TRACE(seed);
        Random random(seed);
        int64_t count = 0;
        const auto ranges = SomeRanges(random, &count);
        const Element type = random.Pick({Element::kF32, Element::kBf16, Element::kF16});
        Typed x(random, 1, count, type, random.Pick({0.01f, 1.0f, 30.0f}));
        const double expected = 0.75 + SquaresOf(x, ranges);
        const auto range_count = static_cast<int64_t>(ranges.size());
        const auto blocks = At(SquaresBlocks(ranges.data(), range_count));
        const void* const data = x.View().data;

        std::vector<double> sums;
        double sum = 0;
        const auto both = [&](int part, int parts, const auto& first, const auto& second) {
            // (The last part to run finds all blocks complete.)
            first(part, parts);
            if (part == 0) second(part, parts);
        };
        ExpectSameInParts(
            [&](int part, int parts) {
                const SquaresArgs args{data, type, ranges.data(), range_count, sums.data(), &sum};
                both(
                    part, parts, [&](int p, int n) { BlockSquares(args, p, n); },
                    [&](int p, int n) { AddSquares(args, p, n); });
            },
            [&] {
                sums.assign(blocks, NAN);
                sum = 0.75;
            },
            [&] { return sum; });
        EXPECT_LE(std::abs(sum - expected), 1e-10 * expected);

        std::vector<FloatPair> pairs;
        FloatPair pair;
        ExpectSameInParts(
            [&](int part, int parts) {
                const PairSquaresArgs args{data,        type,         ranges.data(),
                                           range_count, pairs.data(), &pair};
                both(
                    part, parts, [&](int p, int n) { BlockPairSquares(args, p, n); },
                    [&](int p, int n) { AddPairSquares(args, p, n); });
            },
            [&] {
                pairs.assign(blocks, {NAN, NAN});
                pair = {0.75f, 0};
            },
            [&] { return std::pair(pair.sum, pair.rest); });
        const double error = std::abs(double{pair.sum} + double{pair.rest} - expected);
        EXPECT_LE(error, (1024.0 + 64 + static_cast<double>(blocks)) * 0x1p-46 * expected);
    }
}

// A case where float32 alone loses everything: a large square first, then many small ones.
TEST(Update, PairsKeepSmallTerms) {
    std::vector<float> x(kSquaresBlock, 1.0f / 3);
    x[0] = 4097;  // whose square has 25 bits
    const ElementRange range{0, kSquaresBlock};
    FloatPair block, sum;
    const PairSquaresArgs args{x.data(), Element::kF32, &range, 1, &block, &sum};
    BlockPairSquares(args, 0, 1);
    AddPairSquares(args, 0, 1);
    const double expected = 4097.0 * 4097 + (kSquaresBlock - 1) * std::pow(double{1.0f / 3}, 2);
    EXPECT_LE(std::abs(double{sum.sum} + double{sum.rest} - expected), 0x1p-35 * expected);
}

// ---- Adam and SGD ------------------------------------------------------------------------------

// A rank's own shard of a bucket, with two runs and gaps around them.
struct Part {
    Part(Random& random, int64_t grain)
        : types(random), g(random, 1, 1, Element::kF32), p(g), copy(g), has_copy(random.Int(0, 1)) {
        int64_t at = 0;
        for (int i = 0; i < 2; ++i) {
            const int64_t begin = (at + random.Int(0, 3) + grain - 1) / grain * grain;
            runs.push_back({begin, begin, random.Int(1, 300), i == 0});
            at = begin + runs.back().count;
        }
        count = at + 2;
        g = Typed(random, 1, count, types.Any());
        p = Typed(random, 1, count, Element::kF32);
        copy = Typed(random, 1, count, types.narrow);
        if (has_copy) copy.Poison();
        p_before = p;
    }
    UpdatedPart View() {
        UpdatedPart own{.g = g.View().data, .g_type = g.type, .p = p.data()};
        if (!has_copy) return own;
        own.copy = copy.View().data;
        own.copy_type = copy.type;
        return own;
    }
    void Reset() {
        p = p_before;
        if (has_copy) copy.Poison();
    }
    const UpdateRun* RunOf(int64_t i) const {
        for (const UpdateRun& run : runs) {
            if (i >= run.begin && i < run.begin + run.count) return &run;
        }
        return nullptr;
    }
    double G(int64_t i) const { return double{g.At(0, i)} * scale; }
    double Before(int64_t i) const { return p_before.At(0, i); }
    // Checks that elements outside runs have not changed, and that the copy matches the weights.
    void CheckRest() const {
        for (int64_t i = 0; i < count; ++i) {
            if (RunOf(i) == nullptr) {
                ASSERT_EQ(p.At(0, i), p_before.At(0, i)) << i;
                ASSERT_TRUE(!has_copy || std::isnan(copy.At(0, i))) << i;
            } else if (has_copy) {
                ASSERT_EQ(copy.At(0, i), Stored(copy.type, p.At(0, i))) << i;
            }
        }
    }

    static constexpr double scale = 0.5;  // of gradients
    Types types;
    std::vector<UpdateRun> runs;
    int64_t count = 0;
    Typed g, p, copy, p_before = p;
    bool has_copy;
};

constexpr double kRate = 0.01, kBeta1 = 0.875, kBeta2 = 0.96875, kEps = 1e-6;
constexpr double kDecay = 0.125, kL2 = 0.0625;

struct AdamStep {
    double m, v, p, change;
    AdamStep(double g, double p0, double m0, double v0, bool decays, int64_t number) {
        g += decays ? kL2 * p0 : 0;
        m = kBeta1 * m0 + (1 - kBeta1) * g;
        v = kBeta2 * v0 + (1 - kBeta2) * g * g;
        const auto t = static_cast<double>(number);
        const double step =
            (m / (1 - std::pow(kBeta1, t))) / (std::sqrt(v / (1 - std::pow(kBeta2, t))) + kEps);
        p = p0 - kRate * ((decays ? kDecay * p0 : 0) + step);
        // The effect of roundings of m, which may cancel, on the weight.
        change =
            kRate * (std::abs(p0) + (std::abs(m0) + std::abs(g)) / std::max(std::sqrt(v), kEps));
    }
};

TEST(Update, AdamOverRuns) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Part part_of(random, 1);
        for (UpdateRun& run : part_of.runs) run.kept += 5;  // the state has another offset
        const std::vector<float> m0 = random.Normals(part_of.count + 8);
        std::vector<float> v0 = random.Normals(part_of.count + 8), m, v;
        for (float& x : v0) x *= x;
        const UpdateNumbers numbers{random.Int(1, 9), kRate, Part::scale};
        ExpectSameInParts(
            [&](int part, int parts) {
                const AdamRunsArgs args{
                    part_of.runs.data(), 2,        &numbers, kBeta1, kBeta2, kEps, kL2, kDecay,
                    part_of.View(),      m.data(), v.data()};
                AdamRuns(kernels, args, part, parts);
            },
            [&] {
                part_of.Reset();
                m = m0;
                v = v0;
            },
            [&] { return std::tuple(part_of.p.Bits(), part_of.copy.Bits(), m, v); });
        for (int64_t i = 0; i < part_of.count; ++i) {
            const UpdateRun* run = part_of.RunOf(i);
            if (run == nullptr) continue;
            const size_t at = At(run->kept + i - run->begin);
            const AdamStep step(part_of.G(i), part_of.Before(i), m0[at], v0[at], run->decays,
                                numbers.number);
            const double gradient = std::abs(part_of.G(i)) + std::abs(part_of.Before(i));
            EXPECT_LE(std::abs(m[at] - step.m), 8 * kUlp * (std::abs(m0[at]) + gradient)) << i;
            EXPECT_LE(std::abs(v[at] - step.v), 8 * kUlp * (v0[at] + 3 * gradient * gradient)) << i;
            EXPECT_LE(std::abs(part_of.p.At(0, i) - step.p),
                      2 * kUlp * std::abs(part_of.Before(i)) + 64 * kUlp * step.change)
                << i;
        }
        part_of.CheckRest();
    });
}

// The first step has the length of the rate for any gradient, if moments are corrected by their
// actual decay: 1 - float(0.999) is 1.3e-5 below 1 - 0.999.
TEST(Update, AdamCorrectsByTheBetasOfItsMoments) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        constexpr double kLongRate = 1024;  // roundings of the weights are negligible against it
        Part part_of(random, 1);
        std::vector<float> m(At(part_of.count)), v(At(part_of.count));
        const UpdateNumbers numbers{1, kLongRate, Part::scale};
        const AdamRunsArgs args{part_of.runs.data(), 2,        &numbers, 0.9, 0.999, 0, 0, 0,
                                part_of.View(),      m.data(), v.data()};
        AdamRuns(kernels, args, 0, 1);
        for (int64_t i = 0; i < part_of.count; ++i) {
            if (part_of.RunOf(i) == nullptr || part_of.G(i) == 0) continue;
            const double length = std::abs(part_of.p.At(0, i) - part_of.Before(i));
            EXPECT_LE(std::abs(length / kLongRate - 1), 8 * kUlp) << i;
        }
    });
}

// As AdamRuns with the widened moments, which are then narrowed.
TEST(Update, Adam8bitIsAdamOnWidenedBlocks) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Part part_of(random, kStateBlock);
        Part plain = part_of;
        const int64_t blocks = (part_of.count + kStateBlock - 1) / kStateBlock;
        std::vector<uint8_t> m0(At(blocks * kStateBlock)), v0(m0.size()), m, v;
        for (uint8_t& code : m0) code = static_cast<uint8_t>(random.Int(0, 255));
        for (uint8_t& code : v0) code = static_cast<uint8_t>(random.Int(0, 255));
        std::vector<float> m_scales0, v_scales0, m_scales, v_scales, wide_m(m0.size()),
            wide_v(v0.size());
        for (int64_t b = 0; b < blocks; ++b) {
            m_scales0.push_back(std::abs(random.Normal()));
            v_scales0.push_back(std::abs(random.Normal()));
            const auto block = [&](auto& of) {
                return std::span(of).subspan(At(b * kStateBlock), At(kStateBlock));
            };
            Widen(SignedCodes(), block(m0), m_scales0.back(), block(wide_m));
            Widen(UnsignedCodes(), block(v0), v_scales0.back(), block(wide_v));
        }
        const UpdateNumbers numbers{random.Int(1, 9), kRate, Part::scale};
        ExpectSameInParts(
            [&](int part, int parts) {
                const Adam8bitRunsArgs args{part_of.runs.data(),
                                            2,
                                            &numbers,
                                            kBeta1,
                                            kBeta2,
                                            kEps,
                                            kL2,
                                            kDecay,
                                            part_of.View(),
                                            m.data(),
                                            v.data(),
                                            m_scales.data(),
                                            v_scales.data()};
                Adam8bitRuns(kernels, args, part, parts);
            },
            [&] {
                part_of.Reset();
                m = m0;
                v = v0;
                m_scales = m_scales0;
                v_scales = v_scales0;
            },
            [&] {
                return std::tuple(part_of.p.Bits(), part_of.copy.Bits(), m, v, m_scales, v_scales);
            });
        AdamRuns(kernels,
                 {plain.runs.data(), 2, &numbers, kBeta1, kBeta2, kEps, kL2, kDecay, plain.View(),
                  wide_m.data(), wide_v.data()},
                 0, 1);
        EXPECT_EQ(part_of.p.Bits(), plain.p.Bits());
        part_of.CheckRest();
        for (const UpdateRun& run : part_of.runs) {
            for (int64_t begin = run.begin; begin < run.begin + run.count; begin += kStateBlock) {
                const size_t size = At(std::min(kStateBlock, run.begin + run.count - begin));
                std::vector<uint8_t> codes(size);
                EXPECT_EQ(m_scales[At(begin / kStateBlock)],
                          Narrow(SignedCodes(), std::span(&wide_m[At(begin)], size), codes));
                EXPECT_TRUE(std::ranges::equal(codes, std::span(&m[At(begin)], size)));
                EXPECT_EQ(v_scales[At(begin / kStateBlock)],
                          Narrow(UnsignedCodes(), std::span(&wide_v[At(begin)], size), codes));
                EXPECT_TRUE(std::ranges::equal(codes, std::span(&v[At(begin)], size)));
            }
        }
    });
}

TEST(Update, SgdOverRuns) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Part part_of(random, 1);
        for (UpdateRun& run : part_of.runs) run.kept += 5;
        const bool keeps = random.Int(0, 1) == 0, nesterov = keeps && random.Int(0, 1) == 0;
        const double momentum = keeps ? 0.875 : 0, dampening = keeps ? 0.25 : 0;
        const std::vector<float> b0 = random.Normals(part_of.count + 8);
        std::vector<float> b;
        const UpdateNumbers numbers{random.Int(1, 2), kRate, Part::scale};
        ExpectSameInParts(
            [&](int part, int parts) {
                const SgdRunsArgs args{part_of.runs.data(),
                                       2,
                                       &numbers,
                                       momentum,
                                       dampening,
                                       kL2,
                                       nesterov,
                                       part_of.View(),
                                       keeps ? b.data() : nullptr};
                SgdRuns(kernels, args, part, parts);
            },
            [&] {
                part_of.Reset();
                b = b0;
            },
            [&] { return std::tuple(part_of.p.Bits(), part_of.copy.Bits(), b); });
        for (int64_t i = 0; i < part_of.count; ++i) {
            const UpdateRun* run = part_of.RunOf(i);
            if (run == nullptr) continue;
            const size_t at = At(run->kept + i - run->begin);
            const double p0 = part_of.Before(i);
            const double g = part_of.G(i) + (run->decays ? kL2 * p0 : 0);
            const double taken = numbers.number == 1 ? 1 : 1 - dampening;
            const double kept = momentum * double{b0[at]} + taken * g;
            const double change = !keeps ? g : nesterov ? g + momentum * kept : kept;
            const double size = std::abs(p0) + std::abs(part_of.G(i)) + std::abs(b0[at]);
            EXPECT_LE(std::abs(b[at] - (keeps ? kept : double{b0[at]})), 4 * kUlp * size) << i;
            EXPECT_LE(std::abs(part_of.p.At(0, i) - (p0 - kRate * change)), 4 * kUlp * size) << i;
        }
        part_of.CheckRest();
    });
}

// A moving average (momentum == dampening) of weights around a constant. Its factors must add up to
// 1: an error of one part in 2^25 in them is multiplied by 1 / (1 - D). What remains is the
// rounding of each of the last 1 / (1 - D) updates.
TEST(Update, AMovingAverageIsAnAverage) {
    constexpr int64_t kCount = 256;
    for (const double decay : {0.9, 0.99, 0.9999, 0.99999}) {
        Random random(7);
        const Kernels& kernels = KernelsFor(UsableCpuLevels(DetectCpu()).back());
        const std::vector<float> mean = random.Normals(kCount);
        std::vector<float> p(At(kCount)), b(At(kCount)), g(At(kCount));
        std::vector<double> exact(At(kCount));
        const UpdateRun run{0, 0, kCount, false};
        const auto updates = static_cast<int64_t>(std::min(10 / (1 - decay), 3e5));
        for (int64_t number = 1; number <= updates; ++number) {
            const UpdateNumbers numbers{number, 0, 1};
            for (size_t i = 0; i < g.size(); ++i) {
                // (Noise, because a float stops short of a constant.)
                const auto noise =
                    static_cast<float>((number * 7919 + static_cast<int64_t>(i) * 31) % 201 - 100);
                g[i] = mean[i] * (1 + 1e-3f * noise);
                exact[i] = number == 1 ? g[i] : decay * exact[i] + (1 - decay) * double{g[i]};
            }
            SgdRunsArgs args;
            args.runs = &run;
            args.run_count = 1;
            args.numbers = &numbers;
            args.momentum = args.dampening = decay;
            args.own.p = p.data();
            args.own.g = g.data();
            args.b = b.data();
            SgdRuns(kernels, args, 0, 1);
        }
        double error = 0, size = 0;
        for (size_t i = 0; i < b.size(); ++i) {
            error += (b[i] - exact[i]) * exact[i];
            size += exact[i] * exact[i];
        }
        EXPECT_TRUE(std::abs(error / size) <= 2e-5) << decay << ": " << error / size;
    }
}

// ---- Adafactor ---------------------------------------------------------------------------------

// Two tensors, a stack of two matrices and a vector, of which this rank has a block and a range:
// rows [3, 8) of the stack from column 2 on, without some elements at both ends.
struct Factored {
    explicit Factored(Random& random)
        : types(random),
          cols(random.Int(5, 40)),
          length(random.Int(1, 30)),
          g(random, 1, 1, Element::kF32),
          p(g),
          copy(g),
          has_copy(random.Int(0, 1)) {
        const FactoredTensor stack{10, cols, 2, 0, 10, 0};
        const FactoredTensor vector{0, length, 1, 0, 10 + 2 * cols, 1};
        tensors = {stack, vector};
        moments = 10 + 2 * cols + length;
        const int64_t width = cols - 2;
        const ElementRange range{random.Int(0, width + 1), 5 * width - random.Int(0, width + 1)};
        runs.push_back({stack, 3, 2, width, range, 3, true});
        const int64_t next = 3 + range.end - range.begin + 2;
        runs.push_back({vector, 0, 0, length, {0, length}, next, false});
        count = next + length + 4;
        g = Typed(random, 1, count, types.Any());
        p = Typed(random, 1, count, Element::kF32);
        copy = Typed(random, 1, count, types.narrow);
        p_before = p;
        inverse = random.Normals(moments);
        for (float& x : inverse) x = std::abs(x) + 0.1f;
    }
    // Calls f(run, element of the own shard, index of its row's moment or -1, of its column's
    // moment).
    template <typename F>
    void ForElements(const F& f) const {
        for (const FactoredRun& run : runs) {
            for (int64_t i = run.range.begin; i < run.range.end; ++i) {
                const int64_t row = run.row_begin + i / run.col_count;
                const int64_t col = run.col_begin + i % run.col_count;
                const int64_t matrix = run.tensor.rows == 0 ? 0 : row / 5;
                f(run, run.own + i - run.range.begin, run.tensor.rows == 0 ? -1 : row,
                  run.tensor.cols_at + matrix * run.tensor.cols + col);
            }
        }
    }
    double G(int64_t i) const { return static_cast<double>(static_cast<float>(0.5f * g.At(0, i))); }
    double Inverse(int64_t at) const { return at < 0 ? 1 : double{inverse[At(at)]}; }
    int64_t run_count() const { return static_cast<int64_t>(runs.size()); }

    Types types;
    int64_t cols, length, moments = 0, count = 0;
    std::vector<FactoredTensor> tensors;
    std::vector<FactoredRun> runs;
    Typed g, p, copy, p_before = p;
    bool has_copy;
    std::vector<float> inverse;
    UpdateNumbers numbers{3, 0.25, 0.5};
};

void ExpectSums(const std::vector<double>& values, const std::vector<double>& expected) {
    for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_LE(std::abs(values[i] - expected[i]), 1e-6 * (1 + std::abs(expected[i]))) << i;
    }
}

TEST(Update, AdafactorSumsByRowAndColumn) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        Factored f(random);
        const bool sizes = random.Int(0, 1) == 0;
        std::vector<double> sums, expected(At(f.moments + 2), 0.5);
        ExpectSameInParts(
            [&](int part, int parts) {
                AdafactorSums({f.runs.data(), 2, &f.numbers, f.g.View().data, f.g.type, f.p.data(),
                               f.moments, sizes, sums.data()},
                              part, parts);
            },
            [&] { sums.assign(expected.size(), 0.5); }, [&] { return sums; });
        f.ForElements([&](const FactoredRun& run, int64_t i, int64_t row, int64_t col) {
            const double square = f.G(i) * f.G(i);
            if (row >= 0) expected[At(row)] += square;
            expected[At(col)] += square;
            const double p = f.p.At(0, i);
            if (sizes) expected[At(f.moments + run.tensor.number)] += p * p;
        });
        ExpectSums(sums, expected);
    });
}

TEST(Update, AdafactorMoments) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        const Factored f(random);
        const double eps = 1e-30, kept = 1 - std::pow(3.0, -0.8);
        std::vector<double> sums;
        for (const float x : random.Normals(f.moments)) sums.push_back(double{x} * double{x} + 0.1);
        std::vector<float> before = random.Normals(f.moments), moments, inverse;
        for (float& x : before) x = x * x + 0.1f;
        ExpectSameInParts(
            [&](int part, int parts) {
                AdafactorMoments({f.tensors.data(), 2, &f.numbers, -0.8, eps, sums.data(),
                                  moments.data(), inverse.data()},
                                 part, parts);
            },
            [&] {
                moments = before;
                inverse.assign(before.size(), NAN);
            },
            [&] { return std::pair(moments, inverse); });
        std::vector<double> expected;
        for (int64_t i = 0; i < f.moments; ++i) {
            // Number of elements that a moment is the mean of.
            const bool is_vector = i >= 10 + 2 * f.cols;
            const double of = i < 10 ? static_cast<double>(f.cols) : is_vector ? 1 : 5;
            expected.push_back(kept * before[At(i)] + (1 - kept) * (sums[At(i)] / of + eps));
        }
        const double means[] = {
            std::accumulate(expected.begin(), expected.begin() + 5, 0.0) / 5,
            std::accumulate(expected.begin() + 5, expected.begin() + 10, 0.0) / 5};
        for (int64_t i = 0; i < f.moments; ++i) {
            const double moment = expected[At(i)], mean = i < 10 ? means[i / 5] : 1;
            EXPECT_LE(std::abs(moments[At(i)] - moment), 4 * kUlp * moment) << i;
            const double root = 1 / std::sqrt(moment / mean);
            EXPECT_LE(std::abs(inverse[At(i)] - root), 8 * kUlp * root) << i;
        }
    });
}

TEST(Update, AdafactorSizesOfUpdates) {
    ForLevelsAndSeeds([](const Kernels&, Random& random) {
        Factored f(random);
        std::vector<double> rows, squares, expected = {0.5, 0.5};
        const AdafactorSizesArgs counted{.runs = f.runs.data(), .run_count = 2};
        const int64_t row_count = AdafactorRows(counted.runs, counted.run_count);
        ExpectSameInParts(
            [&](int part, int parts) {
                const AdafactorSizesArgs args{
                    f.runs.data(),    2,           &f.numbers,    f.g.View().data, f.g.type,
                    f.inverse.data(), rows.data(), squares.data()};
                AdafactorRowSizes(args, part, parts);
                if (part == 0) AdafactorAddSizes(args, part, parts);  // the last part to run
            },
            [&] {
                rows.assign(At(row_count), NAN);
                squares.assign(2, 0.5);
            },
            [&] { return squares; });
        f.ForElements([&](const FactoredRun& run, int64_t i, int64_t row, int64_t col) {
            const double u = f.G(i) * f.Inverse(row) * f.Inverse(col);
            expected[At(run.tensor.number)] += u * u;
        });
        ExpectSums(squares, expected);
    });
}

TEST(Update, AdafactorWeights) {
    ForLevelsAndSeeds([](const Kernels& kernels, Random& random) {
        Factored f(random);
        const bool scaled = random.Int(0, 1) == 0, relative = random.Int(0, 1) == 0;
        const std::vector<double> squares = {random.Pick({0.01, 900.0}), 20};
        std::vector<double> sums(At(f.moments), NAN);
        sums.push_back(700);
        sums.push_back(0);
        ExpectSameInParts(
            [&](int part, int parts) {
                AdafactorUpdateArgs args;
                args.runs = f.runs.data();
                args.run_count = f.run_count();
                args.numbers = &f.numbers;
                args.own = {f.g.View().data, f.g.type, f.p.data(),
                            f.has_copy ? f.copy.View().data : nullptr, f.copy.type};
                args.inverse = f.inverse.data();
                args.sums = sums.data();
                args.squares = squares.data();
                args.moments = f.moments;
                args.decay = kDecay;
                args.scale_parameter = scaled;
                args.relative_step = relative;
                AdafactorUpdate(kernels, args, part, parts);
            },
            [&] {
                f.p = f.p_before;
                f.copy.Poison();
            },
            [&] { return std::pair(f.p.Bits(), f.copy.Bits()); });
        std::vector<bool> updated(At(f.count));
        f.ForElements([&](const FactoredRun& run, int64_t i, int64_t row, int64_t col) {
            const auto at = At(run.tensor.number);
            const double elements = run.tensor.elements();
            double rate = relative ? 1e-2 : 0.25;
            if (scaled) rate *= std::max(1e-3, std::sqrt(sums[At(f.moments) + at] / elements));
            const double clipped = rate / std::max(1.0, std::sqrt(squares[at] / elements));
            const double change = clipped * f.G(i) * f.Inverse(row) * f.Inverse(col);
            const double p0 = f.p_before.At(0, i), kept = 1 - (run.decays ? kDecay : 0) * rate;
            EXPECT_LE(std::abs(f.p.At(0, i) - (p0 * kept - change)),
                      4 * kUlp * (std::abs(p0) + 2 * std::abs(change)))
                << i;
            updated[At(i)] = true;
            if (!f.has_copy) return;
            ASSERT_EQ(f.copy.At(0, i), Stored(f.copy.type, f.p.At(0, i))) << i;
        });
        for (int64_t i = 0; i < f.count; ++i) {
            if (updated[At(i)]) continue;
            ASSERT_EQ(f.p.At(0, i), f.p_before.At(0, i)) << i;
            ASSERT_TRUE(std::isnan(f.copy.At(0, i))) << i;
        }
    });
}

}  // namespace
}  // namespace weft::kernels::dense
