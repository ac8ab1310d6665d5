// The row-wise kernels of training of every level against the same formulas in double, over random
// shapes, strides and parts. Elements that a kernel does not own must stay as they were.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/dense/dense.h"

namespace weft::kernels::dense {
namespace {

constexpr float kUntouched = -777.0f;
const double kUnit = std::ldexp(1.0, -24);
const double kExp = std::ldexp(1.0, -20);  // what an exponential and a few roundings err by

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    int64_t Int(int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(engine_);
    }
    float Normal() { return normal_(engine_); }

  private:
    std::mt19937 engine_;
    std::normal_distribution<float> normal_;
};

struct Floats {
    int64_t rows, cols, stride;
    std::vector<float> all;
    Floats(Random& random, int64_t row_count, int64_t col_count, float size = 1)
        : rows(row_count), cols(col_count), stride(col_count + random.Int(0, 3)) {
        all.assign(static_cast<size_t>(rows * stride), kUntouched);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) At(i, j) = size * random.Normal();
        }
    }
    float& At(int64_t i, int64_t j) { return all[static_cast<size_t>(i * stride + j)]; }
    float* data() { return all.data(); }
    void ExpectGaps() {
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = cols; j < stride; ++j) ASSERT_EQ(At(i, j), kUntouched);
        }
    }
};

void ExpectNear(double value, double expected, double bound, const char* what) {
    EXPECT_LE(std::abs(value - expected), bound) << what << ": " << value << ", not " << expected;
}

template <typename F>
void ForCases(const F& test) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    for (CpuLevel level : kCpuLevels) {
        for (uint32_t seed = 0; seed < 40 && level <= best; ++seed) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", seed " << seed);
            Random random(seed);
            test(DenseKernelsFor(level), random);
            if (testing::Test::HasFailure()) return;
        }
    }
}

template <typename F>
void InParts(Random& random, const F& kernel) {
    const int parts = static_cast<int>(random.Int(1, 5));
    for (int i = parts - 1; i >= 0; --i) kernel(i, parts);
}

TEST(DenseRows, NormGradients) {
    ForCases([](const DenseKernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 9), group = random.Int(1, 90);
        const int64_t groups = random.Int(1, 3), cols = group * groups;
        Floats dy(random, rows, cols), x(random, rows, cols), dx(random, rows, cols);
        Floats weight(random, 1, group), dw(random, 1, group);
        const std::vector<float> before = dw.all;
        std::vector<float> inverse(static_cast<size_t>(rows * groups));
        NormGradArgs args;
        args.args = {dy.data(), x.data(), dy.stride, x.stride,  weight.data(), 1e-5f,
                     rows,      cols,     group,     dx.data(), dx.stride,     dw.data()};
        if (random.Int(0, 1) == 1) args.inverse = inverse.data();
        InParts(random, [&](int part, int parts) { kernels.norm_grad_input(args, part, parts); });
        InParts(random, [&](int part, int parts) { kernels.norm_grad_weight(args, part, parts); });
        std::vector<double> sums(before.begin(), before.end()), sizes(sums.size());
        const double unit = kUnit * static_cast<double>(group + 12);
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
                    ExpectNear(dx.At(i, begin + j), s * (dyi * w - xi * s * s * along / count),
                               bound, "dx");
                    sums[static_cast<size_t>(j)] += dyi * xi * s;
                    sizes[static_cast<size_t>(j)] += std::abs(dyi * xi * s);
                }
            }
        }
        for (int64_t j = 0; j < group; ++j) {
            const auto at = static_cast<size_t>(j);
            const double terms = static_cast<double>(rows * groups) * kUnit + unit;
            ExpectNear(dw.At(0, j), sums[at], terms * (sizes[at] + std::abs(before[at])), "dw");
        }
        dx.ExpectGaps(), dw.ExpectGaps();
    });
}

TEST(DenseRows, GluGradients) {
    ForCases([](const DenseKernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 7), cols = random.Int(1, 70);
        Floats dout(random, rows, cols), gate(random, rows, cols, 3), up(random, rows, cols);
        Floats dgate(random, rows, cols), dup(random, rows, cols);
        const bool gelu = random.Int(0, 1) == 1;
        const reference::GluGradArgs args{dout.data(),
                                          gate.data(),
                                          up.data(),
                                          rows,
                                          cols,
                                          dout.stride,
                                          gate.stride,
                                          up.stride,
                                          dgate.data(),
                                          dup.data(),
                                          dgate.stride,
                                          dup.stride,
                                          gelu ? Activation::kGeluTanh : Activation::kSilu};
        InParts(random, [&](int part, int parts) { kernels.glu_grad(args, part, parts); });
        const double root = std::sqrt(2 / M_PI);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                const double g = gate.At(i, j), dy = dout.At(i, j), u = up.At(i, j);
                const double inner = gelu ? 2 * root * (g + 0.044715 * g * g * g) : g;
                const double slope = gelu ? 2 * root * (1 + 3 * 0.044715 * g * g) : 1;
                const double sigmoid = 1 / (1 + std::exp(-inner));
                const double unit = kExp * (1 + std::abs(inner));
                ExpectNear(dup.At(i, j), dy * g * sigmoid,
                           unit * std::abs(dy * g * sigmoid) + 1e-37, "dup");
                ExpectNear(dgate.At(i, j), dy * u * sigmoid * (1 + g * slope * (1 - sigmoid)),
                           unit * std::abs(dy * u * sigmoid) * (1 + std::abs(g * slope)) + 1e-37,
                           "dgate");
            }
        }
        dgate.ExpectGaps(), dup.ExpectGaps();
    });
}

TEST(DenseRows, LossAndItsGradient) {
    ForCases([](const DenseKernels& kernels, Random& random) {
        const int64_t rows = random.Int(1, 7), cols = random.Int(1, 300);
        Floats logits(random, rows, cols, random.Int(0, 1) == 1 ? 1.0f : 40.0f);
        Floats before = logits;
        std::vector<float> losses(static_cast<size_t>(rows), kUntouched);
        std::vector<int32_t> targets;
        for (int64_t i = 0; i < rows; ++i) {
            targets.push_back(static_cast<int32_t>(random.Int(-1, cols - 1)));
        }
        const float dloss = random.Normal();
        const LossArgs args{logits.data(), logits.stride, targets.data(), rows,
                            cols,          dloss,         losses.data()};
        InParts(random, [&](int part, int parts) { kernels.loss(args, part, parts); });
        for (int64_t i = 0; i < rows; ++i) {
            const int32_t target = targets[static_cast<size_t>(i)];
            double largest = -INFINITY, sum = 0;
            for (int64_t j = 0; j < cols; ++j) {
                largest = std::max<double>(largest, before.At(i, j));
            }
            for (int64_t j = 0; j < cols; ++j) sum += std::exp(before.At(i, j) - largest);
            const double in_sum = static_cast<double>(cols) * kUnit + kExp;
            const double loss = target < 0 ? 0 : std::log(sum) + largest - before.At(i, target);
            ExpectNear(losses[static_cast<size_t>(i)], loss,
                       target < 0 ? 0 : in_sum + kExp * (1 + std::abs(loss) + std::abs(largest)),
                       "loss");
            for (int64_t j = 0; j < cols; ++j) {
                const double p = target < 0 ? 0 : std::exp(before.At(i, j) - largest) / sum;
                const double expected = dloss * (j == target ? p - 1 : p);
                const double bound = std::abs(dloss) * (p * 2 * in_sum + 1e-37) +
                                     (j == target ? 4 * kUnit * std::abs(dloss) : 0);
                ExpectNear(logits.At(i, j), expected, bound, "dlogits");
            }
        }
        logits.ExpectGaps();
    });
}

TEST(DenseRows, AdamW) {
    ForCases([](const DenseKernels& kernels, Random& random) {
        const int64_t count = random.Int(1, 200);
        Floats p(random, 1, count), m(random, 1, count), v(random, 1, count), g(random, 1, count);
        for (float& x : v.all) x = x == kUntouched ? x : x * x;
        const bool copy = random.Int(0, 1) == 1;
        std::vector<uint16_t> halves(static_cast<size_t>(count) + 1, 0x1234);
        AdamWArgs args{p.data(), m.data(), v.data(), g.data(), count};
        args.rate = 1e-2f, args.decay = 0.1f, args.grad_scale = 0.37f;
        args.correction1 = 0.271f, args.correction2 = 0.003f;
        args.p_bf16 = copy ? halves.data() : nullptr;
        const Floats p0 = p, m0 = m, v0 = v;
        InParts(random, [&](int part, int parts) { kernels.adamw(args, part, parts); });
        const double unit = 4 * kUnit, beta1 = args.beta1, beta2 = args.beta2;
        for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(i);
            const double gradient = static_cast<double>(args.grad_scale) * g.At(0, i);
            const double first = beta1 * m0.all[at] + (1 - beta1) * gradient;
            const double first_error = unit * (std::abs(m0.all[at]) + std::abs(gradient));
            const double second = beta2 * v0.all[at] + (1 - beta2) * gradient * gradient;
            const double below = std::sqrt(second / args.correction2) + args.eps;
            const double change = args.rate * (first / args.correction1) / below;
            ExpectNear(m.At(0, i), first, first_error, "m");
            ExpectNear(v.At(0, i), second, unit * second, "v");
            ExpectNear(p.At(0, i), p0.all[at] * (1.0 - args.rate * args.decay) - change,
                       unit * (std::abs(p0.all[at]) + 8 * std::abs(change)) +
                           args.rate / args.correction1 * first_error / below,
                       "p");
            const uint32_t bits = std::bit_cast<uint32_t>(p.At(0, i));
            const auto rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            EXPECT_EQ(halves[at], copy ? rounded : 0x1234);
        }
        EXPECT_EQ(halves.back(), 0x1234);
        p.ExpectGaps(), m.ExpectGaps(), v.ExpectGaps();
    });
}

}  // namespace
}  // namespace weft::kernels::dense
