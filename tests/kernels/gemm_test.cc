// The dense products of every level against sums in double: random shapes, tails, strides, parts,
// element types.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "support/dense_elements.h"

namespace weft::kernels::dense {
namespace {

constexpr float kGemmUntouched = -777.0f;

struct Shape {
    int64_t m, n, k;
};

class GemmRandom {
  public:
    explicit GemmRandom(uint32_t seed) : engine_(seed) {}
    int64_t Int(int64_t least, int64_t most) {
        return std::uniform_int_distribution<int64_t>(least, most)(engine_);
    }
    float Normal() { return normal_(engine_); }

  private:
    std::mt19937 engine_;
    std::normal_distribution<float> normal_;
};

constexpr Element kElements[] = {Element::kF32, Element::kBf16, Element::kF16};

// An operand [rows, cols] of any type, whose elements have one of several layouts.
struct Operand {
    int64_t row = 0, col = 0;
    Element type;
    std::vector<float> floats;
    std::vector<uint16_t> halves;
    Operand(GemmRandom& random, int64_t rows, int64_t cols) : type(kElements[random.Int(0, 2)]) {
        const int64_t form = random.Int(0, 4), gap = random.Int(0, 5);
        row = form < 2 ? cols + gap : form < 4 ? 1 : 2;
        col = form < 2 ? 1 : form < 4 ? rows + gap : 2 * rows + gap;
        const int64_t size = (rows - 1) * row + (cols - 1) * col + 1;
        for (int64_t i = 0; i < size; ++i) {
            floats.push_back(random.Normal());
            halves.push_back(Narrowed(type, floats.back()));
        }
    }
    double At(int64_t i, int64_t j, Compute compute) const {
        const auto at = static_cast<size_t>(i * row + j * col);
        const float x = Stored(type, floats[at]);
        return compute == Compute::kBf16 ? Stored(Element::kBf16, x) : x;
    }
    GemmOperand View() const {
        if (type == Element::kF32) return {floats.data(), row, col, type};
        return {halves.data(), row, col, type};
    }
};

class GemmProblem {
  public:
    GemmProblem(GemmRandom& random, Shape s)
        : shape(s), a(random, s.m, s.k), b(random, s.k, s.n), c_stride(s.n + random.Int(0, 3)) {
        args.a = a.View(), args.b = b.View();
        args.c = {nullptr, c_stride, kElements[random.Int(0, 2)]};
        args.m = s.m, args.n = s.n, args.k = s.k;
        args.accumulate = random.Int(0, 1) == 1;
        args.compute = random.Int(0, 1) == 1 ? Compute::kBf16 : Compute::kF32;
        begin.assign(static_cast<size_t>(s.m * c_stride), kGemmUntouched);
        for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) At(begin, i, j) = Kept(random.Normal());
        }
    }
    float& At(std::vector<float>& c, int64_t i, int64_t j) const {
        return c[static_cast<size_t>(i * c_stride + j)];
    }
    // The value as an element of C stores it.
    float Kept(double x) const { return Stored(args.c.type, static_cast<float>(x)); }

    std::vector<float> Run(const Kernels& kernels, int parts, bool last_first) const {
        std::vector<float> c = begin;
        std::vector<uint16_t> halves;
        for (float x : begin) halves.push_back(Narrowed(args.c.type, x));
        GemmArgs call = args;
        call.c.data = c.data();
        if (call.c.type != Element::kF32) call.c.data = halves.data();
        for (int i = 0; i < parts; ++i) {
            const auto bytes = static_cast<size_t>(kernels.gemm_scratch_bytes(args));
            std::vector<std::byte> scratch(bytes, std::byte{0xff});  // NaN, if it is read
            kernels.gemm(call, scratch, last_first ? parts - 1 - i : i, parts);
        }
        for (size_t i = 0; i < c.size() && call.c.type != Element::kF32; ++i) {
            c[i] = Widened(call.c.type, halves[i]);
        }
        return c;
    }

    // k products of two normal numbers and as many sums: each has an error of at most 2^-24 of a
    // partial sum, which is below the sum of sizes, about k (four times that never occurs). Narrow
    // types round that sum once more.
    void Expect(std::vector<float>& c) const {
        for (int64_t i = 0; i < shape.m; ++i) {
            for (int64_t j = 0; j < c_stride; ++j) {
                if (j >= shape.n) {
                    ASSERT_EQ(At(c, i, j), Kept(kGemmUntouched));
                    continue;
                }
                double sum = args.accumulate ? begin[static_cast<size_t>(i * c_stride + j)] : 0;
                double sizes = std::abs(sum);
                for (int64_t d = 0; d < shape.k; ++d) {
                    const double product = a.At(i, d, args.compute) * b.At(d, j, args.compute);
                    sum += product;
                    sizes += std::abs(product);
                }
                const double bound =
                    std::ldexp(1.0, -24) * static_cast<double>(shape.k + 2) * sizes;
                ASSERT_GE(At(c, i, j), Kept(sum - bound)) << "[" << i << ", " << j << "]";
                ASSERT_LE(At(c, i, j), Kept(sum + bound)) << "[" << i << ", " << j << "]";
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
Shape GemmRandomShape(GemmRandom& random, uint32_t seed) {
    if (seed % 8 == 0) return {random.Int(1, 70), random.Int(1, 70), random.Int(600, 1400)};
    if (seed % 8 == 1) return {random.Int(1, 200), random.Int(1, 200), random.Int(1, 60)};
    return {random.Int(1, 70), random.Int(1, 70), random.Int(1, 70)};
}

TEST(Gemm, IsTheProduct) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (uint32_t seed = 0; seed < 160; ++seed) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", seed " << seed);
            GemmRandom random(seed);
            const GemmProblem problem(random, GemmRandomShape(random, seed));
            const int parts = static_cast<int>(random.Int(1, 6));
            std::vector<float> c = problem.Run(KernelsFor(level), parts, random.Int(0, 1) == 1);
            problem.Expect(c);
            if (HasFatalFailure()) return;
        }
    }
}

// A C so large that stores bypass the caches, and its edges.
TEST(Gemm, LargeResults) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level == CpuLevel::kReference) continue;
        for (const Element type : kElements) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level));
            GemmRandom random(8);
            GemmProblem problem(random, {150, 60010, 3});
            const int64_t stride = 60032;  // whole lines
            problem.args.c = {nullptr, stride, type};
            problem.args.accumulate = false;
            std::vector<std::byte> memory(static_cast<size_t>(150 * stride * 4 + 64));
            const uintptr_t at = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
            problem.args.c.data = reinterpret_cast<void*>(at);
            const auto bytes =
                static_cast<size_t>(KernelsFor(level).gemm_scratch_bytes(problem.args));
            for (int part = 0; part < 2; ++part) {
                std::vector<std::byte> scratch(bytes);
                KernelsFor(level).gemm(problem.args, scratch, part, 2);
            }
            std::vector<float> c;
            for (int64_t i = 0; i < 150; ++i) {
                for (int64_t j = 0; j < stride; ++j) {
                    c.push_back(type == Element::kF32
                                    ? problem.args.c.Row<float>(i)[j]
                                    : Widened(type, problem.args.c.Row<uint16_t>(i)[j]));
                    if (j >= problem.shape.n) {
                        ASSERT_EQ(c.back(), 0);
                        c.back() = problem.Kept(kGemmUntouched);
                    }
                }
            }
            problem.c_stride = stride;
            problem.Expect(c);
            if (HasFatalFailure()) return;
        }
    }
}

// Operands that exceed L2.
TEST(Gemm, BlocksThatDoNotFitTheCache) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level == CpuLevel::kReference) continue;
        for (const Shape shape : {Shape{5, 6000, 600}, Shape{6000, 5, 600}}) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", m " << shape.m);
            GemmRandom random(7);
            const GemmProblem problem(random, shape);
            std::vector<float> c = problem.Run(KernelsFor(level), 1, false);
            problem.Expect(c);
            if (HasFatalFailure()) return;
        }
    }
}

// Integers have no error except the final rounding, for any number of blocks of k.
TEST(Gemm, NarrowSumsAreRoundedOnce) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (uint32_t seed = 0; seed < 6; ++seed) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", seed " << seed);
            GemmRandom random(seed);
            GemmProblem problem(random, {random.Int(30, 70), random.Int(30, 70), 2000});
            for (Operand* operand : {&problem.a, &problem.b}) {
                for (size_t i = 0; i < operand->floats.size(); ++i) {
                    operand->floats[i] = static_cast<float>(random.Int(-3, 3));
                    operand->halves[i] = Narrowed(operand->type, operand->floats[i]);
                }
            }
            problem.args.c.type = seed % 2 == 0 ? Element::kBf16 : Element::kF16;
            problem.args.accumulate = true;
            for (float& x : problem.begin) x = static_cast<float>(random.Int(-127, 127));
            const std::vector<float> c = problem.Run(KernelsFor(level), 3, false);
            for (int64_t i = 0; i < problem.shape.m; ++i) {
                for (int64_t j = 0; j < problem.shape.n; ++j) {
                    const auto at = static_cast<size_t>(i * problem.c_stride + j);
                    double sum = problem.begin[at];
                    for (int64_t d = 0; d < problem.shape.k; ++d) {
                        sum +=
                            problem.a.At(i, d, Compute::kF32) * problem.b.At(d, j, Compute::kF32);
                    }
                    ASSERT_EQ(c[at], problem.Kept(sum)) << "[" << i << ", " << j << "]";
                }
            }
        }
    }
}

// Each product is a number times 1, so C has the numbers as they were rounded during packing.
// (Denormals may count as zeros.)
TEST(Gemm, OperandsAreRoundedToBfloat16) {
    std::vector<float> numbers;
    for (const uint32_t bits : {0x3f808000U, 0x3f818000U, 0x3f808001U, 0x3f807fffU, 0xbfff8000U,
                                0x7f7f7fffU, 0x7f7f8000U, 0xff7fffffU, 0x7f800000U, 0xff800000U,
                                0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xffffffffU, 0x00800000U}) {
        numbers.push_back(std::bit_cast<float>(bits));
    }
    GemmRandom random(1);
    while (numbers.size() < 60) numbers.push_back(random.Normal());
    const float one = 1;
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (const bool in_a : {false, true}) {
            for (const int64_t step : {1, 2}) {  // contiguous lanes, and others
                SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", A: " << in_a
                                                << ", every element " << step);
                const int64_t count = static_cast<int64_t>(numbers.size()) / step;
                const GemmOperand by{&one, 1, 1, Element::kF32};
                GemmArgs args;
                args.a = args.b = by;
                std::vector<float> c(static_cast<size_t>(count));
                (in_a ? args.a : args.b).data = numbers.data();
                (in_a ? args.a.row : args.b.col) = step;
                args.c = {c.data(), in_a ? 1 : count, Element::kF32};
                args.m = in_a ? count : 1, args.n = in_a ? 1 : count, args.k = 1;
                args.compute = Compute::kBf16;
                const Kernels& kernels = KernelsFor(level);
                std::vector<std::byte> scratch(
                    static_cast<size_t>(kernels.gemm_scratch_bytes(args)));
                kernels.gemm(args, scratch, 0, 1);
                for (size_t i = 0; i < c.size(); ++i) {
                    const float number = numbers[i * static_cast<size_t>(step)];
                    const float want = Stored(Element::kBf16, number);
                    EXPECT_TRUE(c[i] == want || (std::isnan(c[i]) && std::isnan(want)))
                        << number << ": " << c[i] << " instead of " << want;
                }
            }
        }
    }
}

TEST(Gemm, BitsDoNotDependOnParts) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (uint32_t seed = 0; seed < 12; ++seed) {
            GemmRandom random(seed);
            const GemmProblem problem(random, GemmRandomShape(random, seed));
            const Kernels& kernels = KernelsFor(level);
            const std::vector<float> whole = problem.Run(kernels, 1, false);
            for (int parts : {2, 3, 4, 12}) {
                EXPECT_EQ(problem.Run(kernels, parts, true), whole) << CpuLevelName(level);
            }
        }
    }
}

TEST(Gemm, DepthZeroGivesZerosOrNoChange) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (bool accumulate : {false, true}) {
            GemmRandom random(3);
            GemmProblem problem(random, {40, 33, 1});
            problem.args.k = 0;
            problem.args.accumulate = accumulate;
            std::vector<float> c = problem.Run(KernelsFor(level), 2, false);
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
