// The dense products of every level against sums in double: random shapes, tails, strides, parts.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/dense/dense.h"

namespace weft::kernels::dense {
namespace {

constexpr float kUntouched = -777.0f;

std::vector<CpuLevel> Levels() {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    std::vector<CpuLevel> levels;
    for (CpuLevel level : kCpuLevels) {
        if (level <= best) levels.push_back(level);
    }
    return levels;
}

float FromBf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t ToBf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Shape {
    int64_t m, n, k;
};

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

// An operand [rows, cols] whose elements stand in one of several orders.
struct Operand {
    int64_t row = 0, col = 0;
    std::vector<float> floats;
    std::vector<uint16_t> halves;
    Operand(Random& random, int64_t rows, int64_t cols) {
        const int64_t form = random.Int(0, 4), gap = random.Int(0, 5);
        row = form < 2 ? cols + gap : form < 4 ? 1 : 2;
        col = form < 2 ? 1 : form < 4 ? rows + gap : 2 * rows + gap;
        const int64_t size = (rows - 1) * row + (cols - 1) * col + 1;
        for (int64_t i = 0; i < size; ++i) {
            floats.push_back(random.Normal());
            halves.push_back(ToBf16(floats.back()));
        }
    }
    double At(int64_t i, int64_t j, bool rounded) const {
        const auto at = static_cast<size_t>(i * row + j * col);
        return rounded ? FromBf16(halves[at]) : floats[at];
    }
};

class Problem {
  public:
    Problem(Random& random, Shape s)
        : shape(s), a(random, s.m, s.k), b(random, s.k, s.n), c_stride(s.n + random.Int(0, 3)) {
        args.a = a.floats.data(), args.a_row = a.row, args.a_col = a.col;
        args.b = b.floats.data(), args.b_row = b.row, args.b_col = b.col;
        args.c_stride = c_stride;
        args.m = s.m, args.n = s.n, args.k = s.k;
        args.accumulate = random.Int(0, 1) == 1;
        args.compute = random.Int(0, 1) == 1 ? Compute::kBf16 : Compute::kF32;
        if (random.Int(0, 3) == 0) args.a_bf16 = a.halves.data();
        if (random.Int(0, 3) == 0) args.b_bf16 = b.halves.data();
        begin.assign(static_cast<size_t>(s.m * c_stride), kUntouched);
        for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) At(begin, i, j) = random.Normal();
        }
    }
    float& At(std::vector<float>& c, int64_t i, int64_t j) const {
        return c[static_cast<size_t>(i * c_stride + j)];
    }

    std::vector<float> Run(const DenseKernels& kernels, int parts, bool last_first) const {
        std::vector<float> c = begin;
        GemmArgs call = args;
        call.c = c.data();
        for (int i = 0; i < parts; ++i) {
            const auto bytes = static_cast<size_t>(kernels.gemm_scratch_bytes(args));
            std::vector<std::byte> scratch(bytes, std::byte{0xff});  // NaN, where it is read
            kernels.gemm(call, scratch, last_first ? parts - 1 - i : i, parts);
        }
        return c;
    }

    // k products of two normal numbers and as many sums: each errs by 2^-24 of a partial sum at
    // most, and these are below the sum of sizes, some k (four times that is never seen).
    void Expect(std::vector<float>& c) const {
        const bool rounded = args.compute == Compute::kBf16;
        for (int64_t i = 0; i < shape.m; ++i) {
            for (int64_t j = 0; j < c_stride; ++j) {
                if (j >= shape.n) {
                    ASSERT_EQ(At(c, i, j), kUntouched);
                    continue;
                }
                double sum = args.accumulate ? begin[static_cast<size_t>(i * c_stride + j)] : 0;
                double sizes = std::abs(sum);
                for (int64_t d = 0; d < shape.k; ++d) {
                    const double product = a.At(i, d, rounded || args.a_bf16 != nullptr) *
                                           b.At(d, j, rounded || args.b_bf16 != nullptr);
                    sum += product;
                    sizes += std::abs(product);
                }
                const double bound =
                    std::ldexp(1.0, -24) * static_cast<double>(shape.k + 2) * sizes;
                ASSERT_LE(std::abs(At(c, i, j) - sum), bound) << "[" << i << ", " << j << "]";
            }
        }
    }

    const Shape shape;
    Operand a, b;
    int64_t c_stride;
    GemmArgs args;
    std::vector<float> begin;
};

// Tails of every tile, several blocks of k, several held blocks.
Shape RandomShape(Random& random, uint32_t seed) {
    if (seed % 8 == 0) return {random.Int(1, 70), random.Int(1, 70), random.Int(600, 1400)};
    if (seed % 8 == 1) return {random.Int(1, 200), random.Int(1, 200), random.Int(1, 60)};
    return {random.Int(1, 70), random.Int(1, 70), random.Int(1, 70)};
}

TEST(Gemm, IsTheProduct) {
    for (CpuLevel level : Levels()) {
        for (uint32_t seed = 0; seed < 160; ++seed) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", seed " << seed);
            Random random(seed);
            const Problem problem(random, RandomShape(random, seed));
            const int parts = static_cast<int>(random.Int(1, 6));
            std::vector<float> c =
                problem.Run(DenseKernelsFor(level), parts, random.Int(0, 1) == 1);
            problem.Expect(c);
            if (HasFatalFailure()) return;
        }
    }
}

// More than L2 holds of either operand.
TEST(Gemm, BlocksThatDoNotFitTheCache) {
    for (CpuLevel level : Levels()) {
        if (level == CpuLevel::kReference) continue;
        for (const Shape shape : {Shape{5, 6000, 600}, Shape{6000, 5, 600}}) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", m " << shape.m);
            Random random(7);
            const Problem problem(random, shape);
            std::vector<float> c = problem.Run(DenseKernelsFor(level), 1, false);
            problem.Expect(c);
            if (HasFatalFailure()) return;
        }
    }
}

TEST(Gemm, BitsDoNotDependOnParts) {
    for (CpuLevel level : Levels()) {
        for (uint32_t seed = 0; seed < 12; ++seed) {
            Random random(seed);
            const Problem problem(random, RandomShape(random, seed));
            const DenseKernels& kernels = DenseKernelsFor(level);
            const std::vector<float> whole = problem.Run(kernels, 1, false);
            for (int parts : {2, 3, 4, 12}) {
                EXPECT_EQ(problem.Run(kernels, parts, true), whole) << CpuLevelName(level);
            }
        }
    }
}

TEST(Gemm, NoDepthGivesZerosOrNothing) {
    for (CpuLevel level : Levels()) {
        for (bool accumulate : {false, true}) {
            Random random(3);
            Problem problem(random, {40, 33, 1});
            problem.args.k = 0;
            problem.args.accumulate = accumulate;
            std::vector<float> c = problem.Run(DenseKernelsFor(level), 2, false);
            for (int64_t i = 0; i < 40; ++i) {
                for (int64_t j = 0; j < 33; ++j) {
                    const size_t at = static_cast<size_t>(i * problem.c_stride + j);
                    EXPECT_EQ(c[at], accumulate ? problem.begin[at] : 0);
                }
            }
        }
    }
}

}  // namespace
}  // namespace weft::kernels::dense
