// The row-wise kernels of training on every level against the same formulas in double, over random
// shapes, strides and parts. Elements that a kernel does not own must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "support/typed_matrix.h"

namespace weft::kernels::dense {
namespace {

const double kDenseRowsUnit = std::ldexp(1.0, -24);
const double kExp = std::ldexp(1.0, -20);  // the error of an exponential and a few roundings

using test::Random;
using test::Typed;

// Makes matrices of float32 and of one narrow type.
struct Maker {
    Random& random;
    const Element narrow = random.Int(0, 1) == 0 ? Element::kBf16 : Element::kF16;
    Element Type() const { return random.Int(0, 1) == 0 ? Element::kF32 : narrow; }
    Typed Any(int64_t rows, int64_t cols, float size = 1) const {
        return {random, rows, cols, Type(), size};
    }
    Typed Floats(int64_t rows, int64_t cols, float size = 1) const {
        return {random, rows, cols, Element::kF32, size};
    }
};

void CheckNear(double value, double expected, double bound, const char* what) {
    EXPECT_LE(std::abs(value - expected), bound) << what << ": " << value << ", not " << expected;
}

template <typename F>
void ForCases(const F& test) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (uint32_t seed = 0; seed < 40; ++seed) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", seed " << seed);
            Random random(seed);
            test(KernelsFor(level), random);
            if (testing::Test::HasFailure()) return;
        }
    }
}

template <typename F>
void DenseRowsInParts(Random& random, const F& kernel) {
    const int parts = static_cast<int>(random.Int(1, 5));
    for (int i = parts - 1; i >= 0; --i) kernel(i, parts);
}

TEST(DenseRows, Norm) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), group = random.Int(1, 90);
        const int64_t cols = group * random.Int(1, 3);
        const Maker make{random};
        Typed x = make.Any(rows, cols), weight = make.Floats(1, group);
        const bool in_place = random.Int(0, 1) == 1, plain = random.Int(0, 2) == 0;
        const Typed before = x;
        Typed other = make.Any(rows, cols);
        Typed& y = in_place ? x : other;
        const RmsNormArgs args{x.View(), plain ? nullptr : weight.data(), 1e-5f, rows, cols, group,
                               y.View()};
        DenseRowsInParts(random, [&](int part, int parts) { kernels.rms_norm(args, part, parts); });
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t begin = 0; begin < cols; begin += group) {
                double squares = 0;
                for (int64_t j = 0; j < group; ++j) {
                    squares += std::pow(static_cast<double>(before.At(i, begin + j)), 2);
                }
                const double s = 1 / std::sqrt(squares / static_cast<double>(group) + 1e-5f);
                for (int64_t j = 0; j < group; ++j) {
                    const double w = plain ? 1 : weight.At(0, j);
                    const double expected = before.At(i, begin + j) * s * w;
                    y.CheckNear(
                        i, begin + j, expected,
                        kDenseRowsUnit * static_cast<double>(group + 12) * std::abs(expected), "y");
                }
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseRows, GatedUnits) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 7), cols = random.Int(1, 70);
        const Element type = Maker{random}.Type();
        Typed gate(random, rows, cols, type, 3), up(random, rows, cols, type, 5);
        Typed out(random, rows, cols, type);
        constexpr Activation kAll[] = {Activation::kSilu, Activation::kGeluTanh,
                                       Activation::kClampedSilu};
        const Activation activation = kAll[random.Int(0, 2)];
        const bool limited = activation == Activation::kSilu && random.Int(0, 1) == 1;
        const float limit = limited ? 1.5f : 0.0f;
        const GluArgs args{gate.View(), up.View(), rows, cols, out.View(), activation, limit};
        DenseRowsInParts(random, [&](int part, int parts) { kernels.glu(args, part, parts); });
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                double g = gate.At(i, j), u = up.At(i, j), inner = g;
                if (activation == Activation::kGeluTanh) {
                    inner = 2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
                }
                if (activation == Activation::kClampedSilu) {
                    g = std::min(g, 7.0), inner = 1.702 * g;
                    u = std::clamp(u, -7.0, 7.0) + 1;
                }
                double open = g / (1 + std::exp(-inner));
                if (limited) open = std::min(open, 1.5), u = std::clamp(u, -1.5, 1.5);
                const double expected = open * u;
                // (up + 1 may cancel.)
                const double bound = kExp * (1 + std::abs(inner)) * std::abs(expected) +
                                     8 * kDenseRowsUnit * std::abs(g) + 1e-37;
                out.CheckNear(i, j, expected, bound, "out");
            }
        }
        out.ExpectGaps();
    });
}

TEST(DenseRows, Rope) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 7), heads = random.Int(1, 4);
        const int64_t pairs = random.Int(1, 40), dims = 2 * pairs + random.Int(0, 9);
        const Element type = Maker{random}.Type();
        Typed x(random, rows, heads * dims, type), other(random, rows, heads * dims, type);
        std::vector<float> table;
        for (int64_t i = 0; i < rows * 2 * pairs; ++i) table.push_back(random.Normal());
        const bool in_place = random.Int(0, 1) == 1, neighbours = random.Int(0, 1) == 1;
        const float sign = random.Int(0, 1) == 1 ? 1.0f : -1.0f;
        const Typed before = x;
        Typed& y = in_place ? x : other;
        const RopeArgs args{x.View(), table.data(), sign,      neighbours, rows,
                            heads,    dims,         2 * pairs, y.View()};
        DenseRowsInParts(random, [&](int part, int parts) { kernels.rope(args, part, parts); });
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t column = 0; column < heads * dims; column += dims) {
                for (int64_t p = 0; p < pairs; ++p) {
                    const int64_t first = column + (neighbours ? 2 * p : p);
                    const int64_t second = neighbours ? first + 1 : first + pairs;
                    const double a = before.At(i, first), b = before.At(i, second);
                    const double c = table[static_cast<size_t>(i * 2 * pairs + p)];
                    const double s = sign * table[static_cast<size_t>((2 * i + 1) * pairs + p)];
                    const double unit = 4 * kDenseRowsUnit;
                    y.CheckNear(i, first, a * c - b * s, unit * (std::abs(a * c) + std::abs(b * s)),
                                "first");
                    y.CheckNear(i, second, b * c + a * s,
                                unit * (std::abs(b * c) + std::abs(a * s)), "second");
                }
                for (int64_t j = column + 2 * pairs; j < column + dims; ++j) {
                    EXPECT_EQ(y.At(i, j), before.At(i, j));
                }
            }
        }
        y.ExpectGaps();
    });
}

TEST(DenseRows, SumsBiasesAndScales) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), cols = random.Int(1, 70);
        const Maker make{random};
        Typed a = make.Any(rows, cols), b = make.Any(rows, cols), sum = make.Any(rows, cols);
        Typed moved = make.Any(rows, cols), scaled = make.Any(rows, cols);
        Typed bias = make.Floats(1, cols), db = make.Floats(1, cols);
        const Typed a0 = a, db0 = db;
        const bool in_place = random.Int(0, 1) == 1;
        Typed& y = in_place ? a : sum;
        const float factor = random.Int(0, 1) == 1 ? 1.0f : random.Normal();
        const Temperature temperature{0.3f, random.Int(1, 5), random.Int(0, 2)};
        std::vector<int32_t> positions;
        for (int64_t i = 0; i < rows; ++i) {
            positions.push_back(static_cast<int32_t>(random.Int(0, 40)));
        }
        const bool by_position = random.Int(0, 1) == 1;
        ScaleArgs scale{a.View(), rows, cols, factor, scaled.View()};
        scale.temperature = temperature;
        if (by_position) scale.positions = positions.data();
        DenseRowsInParts(random, [&](int part, int parts) {
            kernels.add_bias({a.View(), bias.data(), rows, cols, moved.View()}, part, parts);
            kernels.scale(scale, part, parts);
            kernels.bias_grad({a.View(), rows, cols, db.data()}, part, parts);
        });
        DenseRowsInParts(random, [&](int part, int parts) {
            kernels.add({a.View(), b.View(), rows, cols, y.View()}, part, parts);
        });
        for (int64_t j = 0; j < cols; ++j) {
            double total = db0.At(0, j), sizes = std::abs(total);
            for (int64_t i = 0; i < rows; ++i) {
                const double x = a0.At(i, j), other = b.At(i, j);
                const int64_t position = positions[static_cast<size_t>(i)] + temperature.offset;
                const double steps = std::floor(static_cast<double>(position) /
                                                static_cast<double>(temperature.length));
                const double by =
                    double{factor} * (by_position ? 1 + double{0.3f} * std::log(1 + steps) : 1.0);
                const double shift = bias.At(0, j);
                total += x, sizes += std::abs(x);
                y.CheckNear(i, j, x + other, kDenseRowsUnit * std::abs(x + other), "sum");
                moved.CheckNear(i, j, x + shift, kDenseRowsUnit * std::abs(x + shift), "x + bias");
                scaled.CheckNear(i, j, by * x, 3 * kDenseRowsUnit * std::abs(by * x), "factor * x");
            }
            CheckNear(db.At(0, j), total, kDenseRowsUnit * static_cast<double>(rows) * sizes, "db");
        }
        y.ExpectGaps(), moved.ExpectGaps(), scaled.ExpectGaps(), db.ExpectGaps();
    });
}

TEST(DenseRows, NormGradients) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), group = random.Int(1, 90);
        const int64_t groups = random.Int(1, 3), cols = group * groups;
        const Maker make{random};
        Typed dy = make.Any(rows, cols), x = make.Any(rows, cols), dx = make.Any(rows, cols);
        Typed weight = make.Floats(1, group), dw = make.Floats(1, group);
        const std::vector<float> before = dw.floats;
        std::vector<float> inverse(static_cast<size_t>(rows * groups));
        RmsNormGradArgs args{dy.View(), x.View(), weight.data(), 1e-5f,    rows,
                             cols,      group,    dx.View(),     dw.data()};
        if (random.Int(0, 1) == 1) args.inverse = inverse.data();
        DenseRowsInParts(random,
                         [&](int part, int parts) { kernels.norm_grad_input(args, part, parts); });
        DenseRowsInParts(random,
                         [&](int part, int parts) { kernels.norm_grad_weight(args, part, parts); });
        std::vector<double> sums(before.begin(), before.end()), sizes(sums.size());
        const double unit = kDenseRowsUnit * static_cast<double>(group + 12);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t begin = 0; begin < cols; begin += group) {
                double squares = 0, along = 0, along_sizes = 0;
                for (int64_t j = 0; j < group; ++j) {
                    const double xi = x.At(i, begin + j);
                    const double product = xi * dy.At(i, begin + j) * weight.At(0, j);
                    squares += xi * xi, along += product, along_sizes += std::abs(product);
                }
                const auto count = static_cast<double>(group);
                const double s = 1 / std::sqrt(squares / count + 1e-5f);
                for (int64_t j = 0; j < group; ++j) {
                    const double xi = x.At(i, begin + j), dyi = dy.At(i, begin + j);
                    const double w = weight.At(0, j);
                    const double bound =
                        unit * s *
                        (std::abs(dyi * w) + std::abs(xi) * s * s * 3 * along_sizes / count);
                    dx.CheckNear(i, begin + j, s * (dyi * w - xi * s * s * along / count), bound,
                                 "dx");
                    sums[static_cast<size_t>(j)] += dyi * xi * s;
                    sizes[static_cast<size_t>(j)] += std::abs(dyi * xi * s);
                }
            }
        }
        for (int64_t j = 0; j < group; ++j) {
            const auto at = static_cast<size_t>(j);
            const double terms = static_cast<double>(rows * groups) * kDenseRowsUnit + unit;
            CheckNear(dw.At(0, j), sums[at], terms * (sizes[at] + std::abs(before[at])), "dw");
        }
        dx.ExpectGaps(), dw.ExpectGaps();
    });
}

TEST(DenseRows, GluGradients) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 7), cols = random.Int(1, 70);
        const Maker make{random};
        const Element type = make.Type();
        Typed dout(random, rows, cols, type), gate(random, rows, cols, type, 3);
        Typed up(random, rows, cols, type), dgate = dout, dup = dout;
        const bool gelu = random.Int(0, 1) == 1;
        const GluGradArgs args{dout.View(), gate.View(),
                               up.View(),   rows,
                               cols,        dgate.View(),
                               dup.View(),  gelu ? Activation::kGeluTanh : Activation::kSilu};
        DenseRowsInParts(random, [&](int part, int parts) { kernels.glu_grad(args, part, parts); });
        const double root = std::sqrt(2 / M_PI);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                const double g = gate.At(i, j), dy = dout.At(i, j), u = up.At(i, j);
                const double inner = gelu ? 2 * root * (g + 0.044715 * g * g * g) : g;
                const double slope = gelu ? 2 * root * (1 + 3 * 0.044715 * g * g) : 1;
                const double sigmoid = 1 / (1 + std::exp(-inner));
                const double unit = kExp * (1 + std::abs(inner));
                dup.CheckNear(i, j, dy * g * sigmoid, unit * std::abs(dy * g * sigmoid) + 1e-37,
                              "dup");
                dgate.CheckNear(
                    i, j, dy * u * sigmoid * (1 + g * slope * (1 - sigmoid)),
                    unit * std::abs(dy * u * sigmoid) * (1 + std::abs(g * slope)) + 1e-37, "dgate");
            }
        }
        dgate.ExpectGaps(), dup.ExpectGaps();
    });
}

size_t Size(int64_t count) {
    return static_cast<size_t>(count);
}

// The vocabulary of 1 to 3 ranks, each with its own columns.
struct CutVocabulary {
    explicit CutVocabulary(Random& random) : rows(random.Int(1, 7)), ranks(random.Int(1, 3)) {
        const float spread = random.Int(0, 1) == 1 ? 1.0f : 40.0f;
        for (int64_t r = 0; r < ranks; ++r) {
            firsts.push_back(all);
            cols.push_back(random.Int(1, 300));
            all += cols.back();
            std::vector<float>& own = logits.emplace_back();
            for (int64_t i = 0; i < rows * cols.back(); ++i) {
                own.push_back(spread * random.Normal());
            }
        }
        for (int64_t i = 0; i < rows; ++i) {
            targets.push_back(static_cast<int32_t>(random.Int(-1, all - 1)));
        }
    }
    double At(const std::vector<std::vector<float>>& of_ranks, int64_t i, int64_t j) const {
        int64_t r = ranks - 1;
        while (j < firsts[Size(r)]) --r;
        return double{of_ranks[Size(r)][Size(i * cols[Size(r)] + j - firsts[Size(r)])]};
    }
    // The statistics of all ranks, concatenated.
    std::vector<float> Stats(const Kernels& kernels, Random& random, const LossTerms& terms) const {
        const int64_t each = terms.stats();
        std::vector<float> stats(Size(rows * ranks * each));
        for (int64_t r = 0; r < ranks; ++r) {
            std::vector<float> own(Size(rows * each), test::kGapElement);
            const SoftmaxStatsArgs args{
                logits[Size(r)].data(), targets.data(), rows,    cols[Size(r)],
                firsts[Size(r)],        own.data(),     each > 3};
            DenseRowsInParts(
                random, [&](int part, int parts) { kernels.softmax_stats(args, part, parts); });
            for (int64_t i = 0; i < rows; ++i) {
                std::copy_n(own.data() + i * each, each, stats.data() + (i * ranks + r) * each);
            }
        }
        return stats;
    }

    int64_t rows, ranks, all = 0;
    std::vector<int64_t> cols, firsts;
    std::vector<std::vector<float>> logits;
    std::vector<int32_t> targets;
};

TEST(DenseRows, CrossEntropyAndItsGradient) {
    ForCases([](const Kernels& kernels, Random& random) {
        CutVocabulary v(random);
        const std::vector<float> slopes = random.Normals(v.rows);
        const std::vector<std::vector<float>> before = v.logits;
        LossTerms terms{0, 0, v.all};
        if (random.Int(0, 1) == 1) terms.smoothing = 0.2f;
        if (random.Int(0, 1) == 1) terms.z_loss = 0.01f;
        const std::vector<float> stats = v.Stats(kernels, random, terms);
        std::vector<float> losses(Size(v.rows), test::kGapElement), hits = losses;
        const CrossEntropyArgs entropy{stats.data(),  v.targets.data(), v.rows, v.ranks,
                                       losses.data(), hits.data(),      terms};
        DenseRowsInParts(random, [&](int part, int parts) { CrossEntropy(entropy, part, parts); });
        for (int64_t r = 0; r < v.ranks; ++r) {
            const CrossEntropyGradArgs args{v.logits[Size(r)].data(),
                                            stats.data(),
                                            v.targets.data(),
                                            slopes.data(),
                                            v.rows,
                                            v.cols[Size(r)],
                                            v.firsts[Size(r)],
                                            v.ranks,
                                            terms};
            DenseRowsInParts(random, [&](int part, int parts) {
                kernels.cross_entropy_grad(args, part, parts);
            });
        }
        const double in_sum = static_cast<double>(v.all) * kDenseRowsUnit + kExp;
        for (int64_t i = 0; i < v.rows; ++i) {
            const int32_t target = v.targets[Size(i)];
            const double dloss = slopes[Size(i)];
            double largest = -INFINITY, sum = 0, plain = 0, sizes = 0;
            for (int64_t j = 0; j < v.all; ++j) largest = std::max(largest, v.At(before, i, j));
            for (int64_t j = 0; j < v.all; ++j) {
                sum += std::exp(v.At(before, i, j) - largest);
                plain += v.At(before, i, j);
                sizes += std::abs(v.At(before, i, j));
            }
            const double log_sum = std::log(sum) + largest;
            const double chosen = target < 0 ? log_sum : v.At(before, i, target);
            const double more = double{terms.smoothing} * chosen - double{terms.share()} * plain +
                                double{terms.z_loss} * log_sum * log_sum;
            const double loss = target < 0 ? 0 : log_sum - chosen + more;
            const double in_more =
                2 * in_sum *
                    (double{terms.share()} * sizes + double{terms.z_loss} * log_sum * log_sum) +
                4 * kDenseRowsUnit * std::abs(chosen);
            CheckNear(
                losses[Size(i)], loss,
                target < 0 ? 0 : in_sum + in_more + kExp * (1 + std::abs(loss) + std::abs(largest)),
                "loss");
            EXPECT_EQ(hits[Size(i)], target >= 0 && chosen >= largest ? 1 : 0);
            for (int64_t j = 0; j < v.all; ++j) {
                const double z = 1 + 2 * double{terms.z_loss} * log_sum;
                const double p = target < 0 ? 0 : z * std::exp(v.At(before, i, j) - largest) / sum;
                const double share = target < 0 ? 0 : double{terms.share()};
                const double expected =
                    dloss * (p - share - (j == target ? 1 - double{terms.smoothing} : 0));
                const double bound = std::abs(dloss) * (std::abs(p) * 4 * in_sum + 1e-37 +
                                                        2 * kDenseRowsUnit * share) +
                                     (j == target ? 4 * kDenseRowsUnit * std::abs(dloss) : 0);
                CheckNear(v.At(v.logits, i, j), expected, bound, "dlogits");
            }
        }
    });
}

TEST(DenseRows, SoftCapGradient) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t cols = random.Int(1, 70);
        std::vector<float> dy, x;
        for (int64_t i = 0; i < 3 * cols; ++i) {
            dy.push_back(random.Normal());
            x.push_back(30 * random.Normal());
        }
        std::vector<float> dx(dy.size(), test::kGapElement);
        const SoftCapGradArgs args{dy.data(), x.data(), dx.data(), 3, cols, 12};
        DenseRowsInParts(random,
                         [&](int part, int parts) { kernels.soft_cap_grad(args, part, parts); });
        for (size_t i = 0; i < dx.size(); ++i) {
            // tanh has an error of a few roundings of its result, and 1 - t^2 the same.
            const double t = std::tanh(double{x[i]} / 12);
            CheckNear(dx[i], dy[i] * (1 - t * t), 2 * kExp * std::abs(dy[i]), "dx");
        }
    });
}

TEST(DenseRows, Adam) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t count = random.Int(1, 200);
        const Maker make{random};
        Typed p = make.Floats(1, count), m = make.Floats(1, count), v = make.Floats(1, count);
        Typed g = make.Any(1, count);
        for (float& x : v.floats) x = x == test::kGapElement ? x : x * x;
        const bool copy = random.Int(0, 1) == 1;
        std::vector<uint16_t> halves(static_cast<size_t>(count) + 1, 0x1234);
        AdamArgs args{p.data(), m.data(), v.data(), g.View().data, g.type, count};
        args.rate = 1e-2f, args.decay = 0.1f, args.grad_scale = 0.37f;
        args.correction1 = 0.271f, args.correction2 = 0.003f;
        args.l2 = random.Int(0, 1) == 1 ? 0.02f : 0.0f;
        args.copy = copy ? halves.data() : nullptr;
        args.copy_type = make.narrow;
        const Typed p0 = p, m0 = m, v0 = v;
        DenseRowsInParts(random, [&](int part, int parts) { kernels.adam(args, part, parts); });
        const double unit = 4 * kDenseRowsUnit, beta1 = args.beta1, beta2 = args.beta2;
        for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(i);
            const double taken = static_cast<double>(args.grad_scale) * g.At(0, i);
            const double pulled = static_cast<double>(args.l2) * p0.floats[at];
            const double gradient = taken + pulled;
            const double whole = std::abs(taken) + std::abs(pulled);  // in errors nothing cancels
            const double first = beta1 * m0.floats[at] + (1 - beta1) * gradient;
            const double first_error = unit * (std::abs(m0.floats[at]) + whole);
            const double second = beta2 * v0.floats[at] + (1 - beta2) * gradient * gradient;
            const double second_error = unit * (second + (1 - beta2) * whole * std::abs(gradient));
            const double below = std::sqrt(second / args.correction2) + args.eps;
            const double change = args.rate * (first / args.correction1) / below;
            CheckNear(m.At(0, i), first, first_error, "m");
            CheckNear(v.At(0, i), second, second_error, "v");
            CheckNear(p.At(0, i), p0.floats[at] * (1.0 - args.rate * args.decay) - change,
                      unit * (std::abs(p0.floats[at]) + 8 * std::abs(change)) +
                          args.rate / args.correction1 * first_error / below +
                          std::abs(change) * second_error / args.correction2 / (below * below),
                      "p");
            EXPECT_EQ(halves[at], copy ? Narrowed(make.narrow, p.At(0, i)) : 0x1234);
        }
        EXPECT_EQ(halves.back(), 0x1234);
        p.ExpectGaps(), m.ExpectGaps(), v.ExpectGaps();
    });
}

TEST(DenseRows, Sgd) {
    ForCases([](const Kernels& kernels, Random& random) {
        const int64_t count = random.Int(1, 200);
        const Maker make{random};
        Typed p = make.Floats(1, count), b = make.Floats(1, count);
        Typed g = make.Any(1, count);
        const bool copy = random.Int(0, 1) == 1, buffer = random.Int(0, 2) > 0;
        std::vector<uint16_t> halves(static_cast<size_t>(count) + 1, 0x1234);
        SgdArgs args{p.data(), buffer ? b.data() : nullptr, g.View().data, g.type, count};
        args.rate = 0.25f, args.momentum = 0.875f, args.taken = 0.75f, args.grad_scale = 0.37f;
        args.l2 = random.Int(0, 1) == 1 ? 0.02f : 0.0f;
        args.nesterov = random.Int(0, 1) == 1;
        args.copy = copy ? halves.data() : nullptr;
        args.copy_type = make.narrow;
        const Typed p0 = p, b0 = b;
        DenseRowsInParts(random, [&](int part, int parts) { kernels.sgd(args, part, parts); });
        for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(i);
            const double taken = static_cast<double>(args.grad_scale) * g.At(0, i);
            const double pulled = static_cast<double>(args.l2) * p0.floats[at];
            const double kept = 0.875 * b0.floats[at];
            const double sum = kept + 0.75 * (taken + pulled);
            const double whole = std::abs(taken) + std::abs(pulled) + std::abs(kept);
            double change = taken + pulled;
            if (buffer) change = args.nesterov ? change + 0.875 * sum : sum;
            CheckNear(b.At(0, i), buffer ? sum : b0.floats[at],
                      buffer ? 4 * kDenseRowsUnit * whole : 0, "b");
            CheckNear(p.At(0, i), p0.floats[at] - 0.25 * change,
                      4 * kDenseRowsUnit * (std::abs(p0.floats[at]) + 2 * whole), "p");
            EXPECT_EQ(halves[at], copy ? Narrowed(make.narrow, p.At(0, i)) : 0x1234);
        }
        EXPECT_EQ(halves.back(), 0x1234);
        p.ExpectGaps(), b.ExpectGaps();
    });
}

}  // namespace
}  // namespace weft::kernels::dense
