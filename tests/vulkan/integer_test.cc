// Products in 8-bit integers on a GPU, forced on devices that are not fast at them: against sums in
// float64 over all quantized types, and with extreme activations. (integer_model_test.cc tests
// whole models.)
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "support/nightly.h"
#include "tensor/quant_parts.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/multiply.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

constexpr Arithmetic kIntegers{.integer = true};

#define WEFT_INTEGERS(opened)               \
    WEFT_VULKAN(opened);                    \
    if (!opened->description().integer_dot) \
    GTEST_SKIP() << opened->description().name << " has no integer dot products"

std::vector<DType> QuantizedTypes() {
    std::vector<DType> types;
    for (const DType dtype : test::TakenTypes()) {
        if (HasIntegerCodes(dtype)) types.push_back(dtype);
    }
    return types;
}

int64_t ColsOf(DType dtype, uint32_t seed) {
    return Info(dtype).block_elements * (1 + static_cast<int64_t>(seed % 3));
}

// Blocks of 32 that int8 represents exactly: integers times a power of two, the largest of them
// 127.
std::vector<float> WholeValues(int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); i += 32) {
        const int exponent = static_cast<int>(random() % 17) - 8;
        for (size_t k = 0; k < 32; ++k) {
            const int code = static_cast<int>(random() % 255) - 127;
            values[i + k] = std::ldexp(static_cast<float>(code), exponent);
        }
        values[i + random() % 32] = std::ldexp(random() % 2 == 0 ? 127.0f : -127.0f, exponent);
    }
    return values;
}

// The product of a row of x and a row of the weight in float64. `sizes`: the sum of magnitudes of
// the terms that kernels add; the terms of codes and of offsets are separate, and may cancel.
// `rounding`: the largest error from rounding x to int8.
struct BlockProduct {
    double value = 0, sizes = 0, rounding = 0;
};

BlockProduct BlockProductOf(const RandomWeight& weight, int64_t row, std::span<const float> x) {
    BlockProduct out;
    const DTypeInfo& info = Info(weight.dtype);
    const std::span<const float> w = weight.Row(row);
    const std::byte* blocks =
        weight.blocks.data() + static_cast<size_t>(row * RowBytes(weight.dtype, weight.cols));
    BlockParts parts;
    for (int64_t i = 0; i < weight.cols; ++i) {
        const auto k = static_cast<size_t>(i % info.block_elements);
        if (k == 0) {
            SplitBlock(weight.dtype, blocks + i / info.block_elements * info.block_bytes, parts);
        }
        const auto c = static_cast<size_t>(i);
        double peak = 0;
        for (size_t b = c / 32 * 32; b < c / 32 * 32 + 32; ++b) {
            peak = std::max(peak, std::fabs(static_cast<double>(x[b])));
        }
        const double value = static_cast<double>(x[c]);
        const double scale = static_cast<double>(parts.scale[k / kPartElements]);
        const double offset = static_cast<double>(parts.offset[k / kPartElements]);
        out.value += static_cast<double>(w[c]) * value;
        // Sums of codes use the rounded x, so the error is proportional to a block's peak.
        out.sizes += (std::fabs(scale * parts.q[k]) + std::fabs(offset)) * peak;
        out.rounding += std::fabs(static_cast<double>(w[c])) * peak / 127;
    }
    return out;
}

// Operations in float32: for each 16 columns, two products and up to four sums; and the scale of x,
// whose division is off by 2.5 units. Each is within 2^-24 of the terms' magnitudes; denormals may
// be lost.
double FloatBound(int64_t cols, double sizes) {
    return static_cast<double>(cols / 16 * 6 + 16) * 0x1p-24 * sizes +
           static_cast<double>(cols) * 0x1p-90;
}

std::vector<float> MultipliedBy(const std::shared_ptr<gpu::Device>& device,
                                const RandomWeight& weight, const std::vector<float>& x,
                                const std::vector<float>& bias = {},
                                const Arithmetic& arithmetic = kIntegers) {
    BenchEmitter e = test::EmitterFor(device, weight, x);
    e.set_arithmetic(arithmetic);
    return test::Multiply(e, weight, x, bias);
}

// whole: x is exact in int8.
void ExpectBlocksNear(const RandomWeight& weight, const std::vector<float>& x,
                      const std::vector<float>& bias, const std::vector<float>& y, bool whole) {
    const auto cols = static_cast<size_t>(weight.cols), n = static_cast<size_t>(weight.rows);
    ASSERT_EQ(y.size() * cols, x.size() * n);
    for (size_t t = 0; t < x.size() / cols; ++t) {
        for (size_t r = 0; r < n; ++r) {
            BlockProduct exact = BlockProductOf(weight, static_cast<int64_t>(r),
                                                std::span(x).subspan(t * cols, cols));
            const double added = bias.empty() ? 0 : static_cast<double>(bias[r]);
            exact.value += added;
            exact.sizes += std::fabs(added);
            // Half a step, and the error of the inverse scale: 2.5 units of 127.
            const double bound = FloatBound(weight.cols, exact.sizes) +
                                 (whole ? 0 : exact.rounding * (0.5 + 127 * 6 * 0x1p-24));
            const double error = std::fabs(static_cast<double>(y[t * n + r]) - exact.value);
            ASSERT_TRUE(error <= bound)
                << Info(weight.dtype).name << " " << n << " x " << cols << ": row " << t
                << " output " << r << " is " << y[t * n + r] << ", exact " << exact.value;
        }
    }
}

void ExpectShapeOf(const std::shared_ptr<gpu::Device>& device, DType dtype, int64_t rows, int64_t n,
                   int64_t cols, uint32_t seed) {
    const RandomWeight weight(dtype, n, cols, seed);
    const std::vector<float> bias =
        seed % 2 == 0 ? std::vector<float>{} : RandomValues(n, seed + 1);
    for (const bool whole : {true, false}) {
        const std::vector<float> x =
            whole ? WholeValues(rows * cols, seed) : RandomValues(rows * cols, seed);
        ExpectBlocksNear(weight, x, bias, MultipliedBy(device, weight, x, bias), whole);
    }
}

TEST(VulkanIntegers, AllTypes) {
    WEFT_INTEGERS(device);
    uint32_t seed = 0;
    for (const DType dtype : QuantizedTypes()) {
        for (const int64_t rows : {1, 5, 9}) {
            const uint32_t type = seed++ / 3;
            if (!weft::test::InTurn(type + seed, 3)) continue;
            ExpectShapeOf(device, dtype, rows, 33, ColsOf(dtype, seed), seed);
        }
        if (HasFailure()) return;
    }
}

TEST(VulkanIntegers, AllShapes) {
    WEFT_INTEGERS(device);
    uint32_t seed = 0;
    for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kQ6_K}) {
        for (const int64_t rows : {1, 2, 5, 8, 9, 17, 40, 70}) {
            for (const int64_t n : {1, 7, 130}) {
                if (!weft::test::InTurn(++seed, 5)) continue;
                ExpectShapeOf(device, dtype, rows, n, ColsOf(dtype, seed), seed);
            }
        }
        if (HasFailure()) return;
    }
    ExpectShapeOf(device, DType::kQ4_0, 1, 2049, 64, 1);
    ExpectShapeOf(device, DType::kQ4_K, 3, 5, 4352, 2);
}

TEST(VulkanIntegers, RowsDoNotDependOnOthers) {
    WEFT_INTEGERS(device);
    for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kQ2_K}) {
        const int64_t cols = 1280, n = 9;
        const RandomWeight weight(dtype, n, cols, 8);
        const std::vector<float> x = RandomValues(70 * cols, 9);
        const auto rows_of = [&](int64_t begin, int64_t count) {
            const std::vector<float> part(x.begin() + begin * cols,
                                          x.begin() + (begin + count) * cols);
            return MultipliedBy(device, weight, part);
        };
        const auto expect = [&](const std::vector<float>& whole, int64_t begin, int64_t count) {
            const std::vector<float> part = rows_of(begin, count);
            ASSERT_EQ(
                std::memcmp(part.data(), whole.data() + begin * n, part.size() * sizeof(float)), 0)
                << Info(dtype).name << " rows " << begin << " + " << count;
        };
        std::vector<float> small;
        for (int64_t row = 0; row < 20; ++row) {
            const std::vector<float> one = rows_of(row, 1);
            small.insert(small.end(), one.begin(), one.end());
        }
        for (const int64_t count : {2, 3, 8}) expect(small, 11, count);
        const std::vector<float> large = rows_of(0, 70);
        for (const int64_t count : {9, 33}) expect(large, 11, count);
        if (HasFailure()) return;
    }
}

// NaN and infinity reach all sums of their row, zeros and tiny numbers give 0, and the bits of
// other rows do not change.
TEST(VulkanIntegers, HostileRows) {
    WEFT_INTEGERS(device);
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_K, DType::kQ8_0, DType::kQ3_K}) {
        const int64_t cols = 512, n = 21;
        const RandomWeight weight(dtype, n, cols, 4);
        const std::vector<float> bias = RandomValues(n, 5);
        for (const int64_t rows : {8, 30}) {
            std::vector<float> x = RandomValues(rows * cols, 6);
            const std::vector<float> plain = MultipliedBy(device, weight, x, bias);
            const auto row = [&](int64_t t) { return x.begin() + t * cols; };
            row(0)[511] = NAN;
            row(1)[40] = INFINITY;
            row(2)[0] = -INFINITY;
            row(2)[1] = NAN;
            std::fill_n(row(3), cols, 0.0f);
            std::fill_n(row(4), cols, 0x1p-110f);
            std::fill_n(row(5), cols, -0x1p-140f);
            row(6)[100] = 3e38f;
            const std::vector<float> y = MultipliedBy(device, weight, x, bias);
            for (int64_t r = 0; r < n; ++r) {
                const auto at = [&](int64_t t) { return y[static_cast<size_t>(t * n + r)]; };
                for (const int64_t t : {0, 1, 2}) EXPECT_TRUE(std::isnan(at(t))) << t << " " << r;
                for (const int64_t t : {3, 4, 5}) EXPECT_EQ(at(t), bias[static_cast<size_t>(r)]);
                EXPECT_TRUE(weight.Row(r)[100] == 0 || std::fabs(at(6)) > 1e30f) << at(6);
            }
            ASSERT_EQ(std::memcmp(y.data() + 7 * n, plain.data() + 7 * n,
                                  static_cast<size_t>((rows - 7) * n) * sizeof(float)),
                      0);
        }
    }
}

TEST(VulkanIntegers, OtherTypesAndTheReferenceStayInFloats) {
    WEFT_INTEGERS(device);
    const RandomWeight half(DType::kF16, 9, 64, 1);
    const std::vector<float> x = RandomValues(12 * 64, 2);
    EXPECT_EQ(MultipliedBy(device, half, x), MultipliedBy(device, half, x, {}, {}));
    BenchEmitter e(device, StepShape{.rows = 3});
    e.set_arithmetic(kIntegers);
    e.set_reference(true);
    const RandomWeight weight(DType::kQ8_0, 9, 64, 1);
    const ValueId in = e.AddFloats({kTokens, 64}, std::span(x).first(3 * 64));
    const ValueId w = e.AddWeight(DType::kQ8_0, {9, 64}, weight.blocks);
    const ValueId out = e.AddFloats({kTokens, 9});
    ASSERT_TRUE(e.Lower(program::MatMul{}, {in, w}, {out}).ok());
    EXPECT_EQ(e.dispatch_count(), 1u);
}

// Products of one x share its codes until x is written.
TEST(VulkanIntegers, CodesAreMadeOnce) {
    WEFT_INTEGERS(device);
    const RandomWeight first(DType::kQ8_0, 9, 64, 1), second(DType::kQ4_0, 5, 64, 2);
    const std::vector<float> x = WholeValues(3 * 64, 3);
    BenchEmitter e(device, StepShape{.rows = 3});
    e.set_arithmetic(kIntegers);
    const ValueId in = e.AddFloats({kTokens, 64}, x);
    const ValueId other = e.AddFloats({kTokens, 64}, RandomValues(3 * 64, 4));
    const ValueId w1 = e.AddWeight(DType::kQ8_0, {9, 64}, first.blocks);
    const ValueId w2 = e.AddWeight(DType::kQ4_0, {5, 64}, second.blocks);
    std::vector<ValueId> y;
    const auto multiply = [&](ValueId from, ValueId w, int64_t n) {
        y.push_back(e.AddFloats({kTokens, n}));
        ASSERT_TRUE(e.Lower(program::MatMul{}, {from, w}, {y.back()}).ok());
    };
    multiply(in, w1, 9);
    multiply(in, w2, 5);
    EXPECT_EQ(e.dispatch_count(), 3u);
    multiply(other, w2, 5);  // the codes of `other` replace those of `in`
    multiply(in, w2, 5);
    EXPECT_EQ(e.dispatch_count(), 7u);
    ASSERT_TRUE(e.Lower(program::Add{}, {in, in}, {in}).ok());
    multiply(in, w1, 9);
    EXPECT_EQ(e.dispatch_count(), 10u);
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_EQ(e.Floats(y[3]), e.Floats(y[1]));
    ExpectBlocksNear(second, x, {}, e.Floats(y[1]), true);
    std::vector<float> doubled = e.Floats(y[0]);
    for (float& value : doubled) value *= 2;
    EXPECT_EQ(e.Floats(y[4]), doubled);
}

TEST(VulkanIntegers, AMatrixForEachHead) {
    WEFT_INTEGERS(device);
    const int64_t heads = 3, n = 10;
    for (const DType dtype : {DType::kQ8_0, DType::kQ5_K}) {
        for (const int64_t rows : {1, 3, 21}) {
            const int64_t cols = ColsOf(dtype, 0);
            const RandomWeight weight(dtype, heads * n, cols, 51);
            const std::vector<float> x = WholeValues(rows * heads * cols, 52);
            BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
            e.set_arithmetic(kIntegers);
            const ValueId in = e.AddFloats({kTokens, heads * cols}, x);
            const ValueId w = e.AddWeight(dtype, {heads, n, cols}, weight.blocks);
            const ValueId y = e.AddFloats({kTokens, heads * n});
            ASSERT_TRUE(e.Lower(program::HeadMatMul{}, {in, w}, {y}).ok());
            const Status run = e.Run();
            ASSERT_TRUE(run.ok()) << run.error().message;
            const std::vector<float> got = e.Floats(y);
            for (int64_t i = 0; i < rows * heads * n; ++i) {
                const int64_t t = i / (heads * n), row = i % (heads * n), head = row / n;
                const BlockProduct exact = BlockProductOf(
                    weight, row,
                    std::span(x).subspan(static_cast<size_t>((t * heads + head) * cols),
                                         static_cast<size_t>(cols)));
                const double error =
                    std::fabs(static_cast<double>(got[static_cast<size_t>(i)]) - exact.value);
                ASSERT_TRUE(error <= FloatBound(cols, exact.sizes)) << Info(dtype).name << " " << i;
            }
        }
    }
}

// ---- Experts ------------------------------------------------------------------------------------

// Row t chose experts, two of three of which are here; by slots and as a sum.
void ExpectExperts(const std::shared_ptr<gpu::Device>& device, DType dtype, int64_t rows) {
    const int64_t used = 3, held = 4, first = 2, n = 19, cols = ColsOf(dtype, 0),
                  slots = rows * used;
    const RandomWeight weight(dtype, held * n, cols, static_cast<uint32_t>(rows));
    std::vector<int32_t> choice(static_cast<size_t>(slots));
    std::vector<float> x = WholeValues(slots * cols, 3);
    const auto matrix_of = [&](int64_t slot) {
        const int64_t expert = choice[static_cast<size_t>(slot)] - first;
        return expert >= 0 && expert < held ? expert : -1;
    };
    for (int64_t slot = 0; slot < slots; ++slot) {
        choice[static_cast<size_t>(slot)] =
            static_cast<int32_t>((slot / used * 5 + slot % used * 2) % 7);
        // Slots that nobody wrote.
        if (matrix_of(slot) < 0) std::fill_n(x.begin() + slot * cols, cols, NAN);
    }
    const std::vector<float> factors = RandomValues(slots, 5);
    BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
    e.set_arithmetic(kIntegers);
    const ValueId in = e.AddFloats({kTokens, used, cols}, x);
    const ValueId ids = e.AddInts({kTokens, used}, choice);
    const ValueId w = e.AddWeight(dtype, {held, n, cols}, weight.blocks);
    const ValueId shares = e.AddFloats({kTokens, used}, factors);
    const ValueId products = e.AddFloats({kTokens, used, n}), sums = e.AddFloats({kTokens, n});
    ASSERT_TRUE(
        e.Lower(program::ExpertMatMul{.first_expert = first}, {in, ids, w}, {products}).ok());
    ASSERT_TRUE(
        e.Lower(program::ExpertSum{.first_expert = first}, {in, ids, shares, w}, {sums}).ok());
    const Status run = e.Run();
    ASSERT_TRUE(run.ok()) << run.error().message;
    const std::vector<float> got = e.Floats(products), added = e.Floats(sums);
    for (int64_t i = 0; i < rows * n; ++i) {
        BlockProduct sum;
        for (int64_t slot = i / n * used; slot < (i / n + 1) * used; ++slot) {
            if (matrix_of(slot) < 0) continue;
            const BlockProduct one = BlockProductOf(
                weight, matrix_of(slot) * n + i % n,
                std::span(x).subspan(static_cast<size_t>(slot * cols), static_cast<size_t>(cols)));
            const float value = got[static_cast<size_t>(slot * n + i % n)];
            ASSERT_TRUE(std::fabs(static_cast<double>(value) - one.value) <=
                        FloatBound(cols, one.sizes))
                << Info(dtype).name << " rows " << rows << " slot " << slot;
            const auto factor = static_cast<double>(factors[static_cast<size_t>(slot)]);
            sum.value += factor * one.value;
            sum.sizes += std::fabs(factor) * one.sizes;
        }
        const double error =
            std::fabs(static_cast<double>(added[static_cast<size_t>(i)]) - sum.value);
        ASSERT_TRUE(error <= FloatBound(cols, sum.sizes) + 8 * 0x1p-24 * sum.sizes)
            << Info(dtype).name << " rows " << rows << " sum " << i;
    }
}

TEST(VulkanIntegers, Experts) {
    WEFT_INTEGERS(device);
    size_t turn = 0;
    for (const int64_t rows : {1, 5, 8, 9, 70}) {
        for (const DType dtype : {DType::kMXFP4, DType::kQ4_K}) {
            if (!weft::test::InTurn(turn++, 3)) continue;
            ExpectExperts(device, dtype, rows);
            if (HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
