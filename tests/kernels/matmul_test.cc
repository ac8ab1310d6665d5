#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "support/nightly.h"
#include "support/weight_products.h"

namespace weft::kernels {
namespace {

using test::MatmulAligned, test::MatmulExpectNear, weft::test::RunsWithStandIn,
    weft::test::TestedCpuLevels, test::MatmulRounded, test::Multiply, test::Packed,
    test::RandomFloats, test::Weight, test::WeightTypes;

struct Shape {
    int64_t rows, cols, tokens;
};

// Some fixed shapes and this many random ones, a third of them in the daily run.
std::vector<Shape> ShapesFor(std::mt19937& random, DType dtype, int count) {
    if (!weft::test::Nightly()) count = (count + 2) / 3;
    const int64_t unit = Info(dtype).block_elements;
    const int64_t most = unit == 256 ? 4 : unit == 32 ? 20 : 200;
    std::vector<Shape> shapes = {{1, unit, 1}, {16, unit, 150}, {33, unit * 3, 7}};
    const auto pick = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    for (int i = 0; i < count; ++i) {
        const int64_t tokens = i % 2 == 0 ? pick(1, 4) : pick(5, 70);
        shapes.push_back({pick(1, 130), pick(1, most) * unit, tokens});
    }
    return shapes;
}

TEST(MatMul, EveryLevelIsNearExactArithmetic) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(11);
        for (DType dtype : WeightTypes()) {
            const ActivationFormat as = kernels.activation_format(dtype);
            for (const Shape& shape : ShapesFor(random, dtype, 12)) {
                const Weight weight(random, dtype, shape.rows, shape.cols);
                const Packed packed(kernels, weight);
                const auto x = RandomFloats(random, shape.tokens * shape.cols);
                for (int64_t segment : {0, 32, 64}) {
                    const auto y = Multiply(kernels, packed, x, shape.tokens, 1, nullptr, segment);
                    ASSERT_NO_FATAL_FAILURE(
                        MatmulExpectNear(weight, MatmulRounded(x, as), shape.tokens, y))
                        << CpuLevelName(level);
                }
            }
        }
    }
}

// One token has the same bits alone and among many, and parts change nothing.
TEST(MatMul, BitsDependNeitherOnOtherTokensNorOnParts) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(12);
        for (DType dtype : WeightTypes()) {
            for (const Shape& shape : ShapesFor(random, dtype, 4)) {
                const Weight weight(random, dtype, shape.rows, shape.cols);
                const Packed packed(kernels, weight);
                const auto x = RandomFloats(random, shape.tokens * shape.cols);
                const auto bias = RandomFloats(random, shape.rows);
                const int64_t cut = shape.tokens % 2 == 0 ? 32 : 0;
                const auto all = Multiply(kernels, packed, x, shape.tokens, 1, bias.data(), cut);
                for (int parts = 2; parts <= 5; ++parts) {
                    ASSERT_EQ(all,
                              Multiply(kernels, packed, x, shape.tokens, parts, bias.data(), cut));
                }
                for (int64_t t = 0; t < shape.tokens; t += 3) {
                    const std::vector<float> row(x.begin() + t * shape.cols,
                                                 x.begin() + (t + 1) * shape.cols);
                    const std::vector<float> expected(all.begin() + t * shape.rows,
                                                      all.begin() + (t + 1) * shape.rows);
                    ASSERT_EQ(expected, Multiply(kernels, packed, row, 1, 1, bias.data(), cut))
                        << CpuLevelName(level) << " " << Info(dtype).name << " token " << t
                        << " of " << shape.tokens << " [" << shape.rows << ", " << shape.cols
                        << "]";
                }
            }
        }
    }
}

// A value that is not finite reaches all products of its token, wherever it lies in a block, and
// changes no other token.
TEST(MatMul, KeepsNanAndInfinity) {
    constexpr int64_t kRows = 17, kTokens = 3;
    for (const CpuLevel level : TestedCpuLevels()) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(19);
        for (DType dtype : WeightTypes()) {
            const int64_t cols = std::max<int64_t>(64, Info(dtype).block_elements);
            const Weight weight(random, dtype, kRows, cols);
            const Packed packed(kernels, weight);
            auto x = RandomFloats(random, kTokens * cols);
            const auto expected = Multiply(kernels, packed, x, kTokens, 1);
            for (int64_t at = 0; at < 32; at += RunsWithStandIn(level) ? 5 : 1) {
                for (const float wrong : {NAN, -NAN, INFINITY, -INFINITY}) {
                    float& value = x[static_cast<size_t>(cols + 32 + at)];
                    const float before = std::exchange(value, wrong);
                    const auto y = Multiply(kernels, packed, x, kTokens, 1);
                    value = before;
                    for (size_t i = 0; i < y.size(); ++i) {
                        const bool of_token = i / kRows == 1;
                        ASSERT_TRUE(of_token ? !std::isfinite(y[i]) : y[i] == expected[i])
                            << CpuLevelName(level) << " " << Info(dtype).name << " " << wrong
                            << " at " << at << ": " << y[i];
                    }
                }
            }
        }
    }
}

// All levels except the reference add the same integers and floats in the same order, so a cluster
// of different machines computes the same numbers. BF16 and FP8 differ: AVX-512 multiplies them by
// BF16 activations, others by float32 ones.
TEST(MatMul, FastLevelsAgreeBitForBit) {
    std::vector<CpuLevel> levels = TestedCpuLevels();
    std::erase(levels, CpuLevel::kReference);
    if (levels.size() < 2) GTEST_SKIP() << "this CPU has one level";
    std::mt19937 random(16);
    for (DType dtype : WeightTypes()) {
        if (dtype == DType::kBF16 || dtype == DType::kFP8) continue;
        for (const Shape& shape : ShapesFor(random, dtype, 4)) {
            const Weight weight(random, dtype, shape.rows, shape.cols);
            const auto x = RandomFloats(random, shape.tokens * shape.cols);
            const Packed packed(KernelsFor(levels[0]), weight);
            for (int64_t cut : {0, 64}) {
                std::vector<float> expected;
                for (const CpuLevel level : levels) {
                    const int64_t products = shape.rows * shape.cols * shape.tokens;
                    if (RunsWithStandIn(level) && products > 100'000) continue;
                    const Kernels& kernels = KernelsFor(level);
                    const auto y = Multiply(kernels, packed, x, shape.tokens, 1, nullptr, cut);
                    if (level == levels[0]) expected = y;
                    ASSERT_EQ(expected, y) << CpuLevelName(level) << " " << Info(dtype).name;
                }
            }
        }
    }
}

// Columns [begin, end) of a weight, on block bounds.
Weight ColumnsOf(const Weight& weight, int64_t begin, int64_t end) {
    Weight part = weight;
    part.cols = end - begin;
    part.blocks.clear();
    const int64_t stride = RowBytes(weight.dtype, weight.cols);
    for (int64_t row = 0; row < weight.rows; ++row) {
        const std::byte* source = weight.blocks.data() + row * stride;
        part.blocks.insert(part.blocks.end(), source + RowBytes(weight.dtype, begin),
                           source + RowBytes(weight.dtype, end));
    }
    return part;
}

// The float64 sums over columns [begin, end) of weight and x.
std::vector<double> WideSums(const Kernels& kernels, const Weight& weight,
                             const std::vector<float>& x, int64_t tokens, int64_t begin,
                             int64_t end) {
    const Packed packed(kernels, ColumnsOf(weight, begin, end));
    const int64_t cols = end - begin;
    MatmulAligned quantized(tokens * kernels.quantized_bytes(cols));
    const float* mine = x.data() + begin;
    kernels.quantize_activations({mine, weight.cols, tokens, cols, quantized.data.get(),
                                  kernels.activation_format(weight.dtype)},
                                 0, 1);
    std::vector<double> wide(static_cast<size_t>(tokens * weight.rows));
    const MatMulArgs args{packed.matrix, mine,    weight.cols, quantized.data.get(), tokens,
                          nullptr,       nullptr, 64,          wide.data(),          weight.rows};
    kernels.matmul(args, 0, 1);
    return wide;
}

// The float64 sums of weight and x, where all columns except `own` are zeros.
std::vector<double> PaddedSums(const Kernels& kernels, const Packed& packed,
                               const std::vector<float>& x, int64_t tokens, const Range& own,
                               int64_t segment, bool told) {
    const int64_t cols = packed.matrix.cols, rows = packed.matrix.rows;
    std::vector<float> padded(x.size());
    for (int64_t t = 0; t < tokens; ++t) {
        std::copy(x.begin() + t * cols + own.begin, x.begin() + t * cols + own.end,
                  padded.begin() + t * cols + own.begin);
    }
    MatmulAligned quantized(tokens * kernels.quantized_bytes(cols));
    kernels.quantize_activations({padded.data(), cols, tokens, cols, quantized.data.get(),
                                  kernels.activation_format(packed.matrix.dtype)},
                                 0, 1);
    std::vector<double> wide(static_cast<size_t>(tokens * rows));
    MatMulArgs args{packed.matrix, padded.data(), cols,    quantized.data.get(), tokens,
                    nullptr,       nullptr,       segment, wide.data(),          rows};
    if (told) args.x_used = own;
    kernels.matmul(args, 0, 1);
    return wide;
}

// For a cut at any multiple of the segment, float64 partial sums add up to the bits of the whole,
// except in a rare rounding case (about one in 10^7), which does not occur here.
TEST(MatMul, SegmentedSumsDoNotDependOnTheCut) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level == CpuLevel::kReference) continue;
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(17);
        for (DType dtype : WeightTypes()) {
            const int64_t rows = 37, cols = 1024, tokens = 53;
            const int64_t cut = Info(dtype).block_elements == 256 ? 256 : 5 * 64;
            const Weight weight(random, dtype, rows, cols);
            const auto x = RandomFloats(random, tokens * cols);
            const auto all = WideSums(kernels, weight, x, tokens, 0, cols);
            const auto left = WideSums(kernels, weight, x, tokens, 0, cut);
            const auto right = WideSums(kernels, weight, x, tokens, cut, cols);
            const auto rounded =
                Multiply(kernels, Packed(kernels, weight), x, tokens, 1, nullptr, 64);
            for (size_t i = 0; i < all.size(); ++i) {
                ASSERT_EQ(static_cast<float>(left[i] + right[i]), rounded[i])
                    << CpuLevelName(level) << " " << Info(dtype).name;
                ASSERT_EQ(static_cast<float>(all[i]), rounded[i]);
            }
        }
    }
}

// The same for types with blocks that a cut divides: each part contains the whole blocks, with
// zeros in the other part's columns; the caller may tell a kernel about these zeros.
TEST(MatMul, SumsOfPartsOfBlocksDoNotDependOnTheCut) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        if (level == CpuLevel::kReference) continue;
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(18);
        for (DType dtype : WeightTypes()) {
            if (Info(dtype).block_elements != 256 && dtype != DType::kFP8) continue;
            const int64_t rows = 37, cols = 512, tokens = 53;
            const Packed packed(kernels, Weight(random, dtype, rows, cols));
            const auto x = RandomFloats(random, tokens * cols);
            for (const int64_t segment : {32, 64, 128}) {
                const auto whole = Multiply(kernels, packed, x, tokens, 1, nullptr, segment);
                for (int64_t cut = segment; cut < cols; cut += 3 * segment) {
                    const bool told = cut / segment % 2 == 1;
                    const auto left =
                        PaddedSums(kernels, packed, x, tokens, {0, cut}, segment, told);
                    const auto right =
                        PaddedSums(kernels, packed, x, tokens, {cut, cols}, segment, told);
                    for (size_t i = 0; i < whole.size(); ++i) {
                        ASSERT_EQ(static_cast<float>(left[i] + right[i]), whole[i])
                            << CpuLevelName(level) << " " << Info(dtype).name << " at " << cut;
                    }
                }
            }
        }
    }
}

TEST(MatMul, AddsTheBias) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(13);
        for (DType dtype : WeightTypes()) {
            const Weight weight(random, dtype, 37, Info(dtype).block_elements * 2);
            const Packed packed(kernels, weight);
            const auto x = RandomFloats(random, 49 * weight.cols);
            const auto bias = RandomFloats(random, weight.rows);
            const auto plain = Multiply(kernels, packed, x, 49, 1);
            const auto biased = Multiply(kernels, packed, x, 49, 1, bias.data());
            for (size_t i = 0; i < plain.size(); ++i) {
                EXPECT_EQ(biased[i], plain[i] + bias[i % bias.size()]);
            }
        }
    }
}

TEST(MatMul, PackedSizeStaysNearTheFile) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        for (DType dtype : WeightTypes()) {
            for (int64_t cols : {512, 2048, 8192}) {
                const auto native = static_cast<double>(2048 * RowBytes(dtype, cols));
                const auto packed =
                    static_cast<double>(KernelsFor(level).packed_bytes(dtype, 2048, cols));
                // TQ1_0 becomes TQ2_0; the 6-bit scales of others become bytes.
                const double most = dtype == DType::kTQ1_0 ? 66.0 / 54 : 1.037;
                EXPECT_LE(packed, native * most) << CpuLevelName(level) << " " << Info(dtype).name;
            }
        }
    }
}

TEST(Embedding, RowsAreTheDequantizedFloats) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(14);
        for (DType dtype : WeightTypes()) {
            const Weight weight(random, dtype, 53, Info(dtype).block_elements * 3);
            const Packed packed(kernels, weight);
            const std::vector<int32_t> tokens = {100, 152, 99, 153, 117, 0, 131, 132};
            const auto stride = static_cast<size_t>(weight.cols + 1);
            std::vector<float> y(tokens.size() * stride, NAN);
            const EmbeddingArgs args{packed.matrix, 100,
                                     tokens.data(), static_cast<int64_t>(tokens.size()),
                                     y.data(),      static_cast<int64_t>(stride)};
            for (int part = 0; part < 3; ++part) kernels.embedding(args, part, 3);
            for (size_t i = 0; i < tokens.size(); ++i) {
                const int64_t row = tokens[i] - 100;
                const bool here = row >= 0 && row < 53;
                for (int64_t k = 0; k < weight.cols; ++k) {
                    const float expected =
                        here ? weight.floats[static_cast<size_t>(row * weight.cols + k)] : 0.0f;
                    ASSERT_EQ(expected, y[i * stride + static_cast<size_t>(k)])
                        << CpuLevelName(level) << " " << Info(dtype).name << " row " << row;
                }
            }
        }
    }
}

// NaN, infinite, huge or denormal scales may give any number, but must not trap or loop.
TEST(MatMul, ExtremeScalesAndActivationsDoNotTrap) {
    const uint16_t wild[] = {0x7e00, 0x7c00, 0xfc00, 0x0001, 0x7bff, 0x8000};
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const Kernels& kernels = KernelsFor(level);
        std::mt19937 random(15);
        for (DType dtype : WeightTypes()) {
            Weight weight(random, dtype, 40, 512);
            for (size_t i = 0; i + 1 < weight.blocks.size(); i += 18) {
                std::memcpy(&weight.blocks[i], &wild[i / 18 % 6], 2);
            }
            const Packed packed(kernels, weight);
            auto x = RandomFloats(random, 12 * weight.cols);
            const float odd[] = {NAN, INFINITY, -INFINITY, 1e38f, 1e-45f, -1e-40f, 3e38f};
            for (size_t i = 0; i < x.size(); i += 37) x[i] = odd[i % 7];
            Multiply(kernels, packed, x, 12, 2);
            Multiply(kernels, packed, x, 1, 1);
        }
    }
}

}  // namespace
}  // namespace weft::kernels
