// Tiles in float16 on a GPU's matrix units (emulated by ordinary instructions on a GPU without
// them): against sums in float64, and with numbers outside the range of float16.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "backend/gpu/lower/products.h"
#include "tensor/quant_parts.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/matrix_of.h"
#include "vulkan/multiply.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

Arithmetic MatrixArithmetic(const std::shared_ptr<gpu::Device>& device) {
    return {.matrix = test::MatrixOf(device->description())};
}

// Types with an emulation.
constexpr DType kMatrixTypes[] = {DType::kF16,  DType::kQ4_0,  DType::kQ8_0,  DType::kQ4_K,
                                  DType::kQ6_K, DType::kIQ2_S, DType::kMXFP4, DType::kW4,
                                  DType::kW8,   DType::kNVFP4};

int64_t MatrixCols(DType dtype, uint32_t seed) {
    const int64_t block = Info(dtype).block_elements;
    return block == 1 ? 37 + 64 * static_cast<int64_t>(seed % 3)
                      : block * (1 + static_cast<int64_t>(seed % 3));
}

// At least the bound that tile_matrix.glsl derives from a row's scales.
double RowBound(const RandomWeight& weight, int64_t row) {
    const DTypeInfo& info = Info(weight.dtype);
    double most = 0;
    if (!info.quantized) {
        for (const float w : weight.Row(row)) most = std::max(most, std::fabs(double{w}));
        return most;
    }
    const std::byte* blocks =
        weight.blocks.data() + static_cast<size_t>(row * RowBytes(weight.dtype, weight.cols));
    double scale = 0, offset = 0;
    for (int64_t b = 0; b < weight.cols / info.block_elements; ++b) {
        BlockParts parts;
        SplitBlock(weight.dtype, blocks + b * info.block_bytes, parts);
        for (int64_t p = 0; p < info.block_elements / kPartElements; ++p) {
            scale = std::max(scale, std::fabs(double{parts.scale[p]}));
            offset = std::max(offset, std::fabs(double{parts.offset[p]}));
        }
    }
    return 256 * scale + offset;
}

struct HalfProduct {
    double value = 0, bound = 0;
};

// A driver may truncate when it rounds to float16 (2^-10 of a number), and flush to zero values
// below 2^-14, where the largest of a row is at least 2^14. exact: both factors are exact in
// float16. Sums are in float32 in any order, possibly truncated.
HalfProduct HalfProductOf(const RandomWeight& weight, int64_t row, std::span<const float> x,
                          bool exact) {
    const std::span<const float> w = weight.Row(row);
    HalfProduct out;
    double sizes = 0, peak = 0, w_sum = 0, x_sum = 0;
    for (size_t i = 0; i < w.size(); ++i) {
        out.value += double{w[i]} * double{x[i]};
        sizes += std::fabs(double{w[i]} * double{x[i]});
        peak = std::max(peak, std::fabs(double{x[i]}));
        w_sum += std::fabs(double{w[i]});
        x_sum += std::fabs(double{x[i]});
    }
    const double lost = 0x1p-28 * (w_sum * peak + x_sum * RowBound(weight, row));
    const auto terms = static_cast<double>(w.size() + 4);
    out.bound = 2 * terms * 0x1p-23 * sizes + (exact ? 0 : 2.01 * 0x1p-10 * sizes) + lost;
    return out;
}

std::vector<float> MatrixMultiplied(const std::shared_ptr<gpu::Device>& device,
                                    const RandomWeight& weight, const std::vector<float>& x,
                                    const std::vector<float>& bias = {},
                                    int64_t least_large_tiles = 100) {
    BenchEmitter e = test::EmitterFor(device, weight, x);
    Arithmetic arithmetic = MatrixArithmetic(device);
    arithmetic.least_large_tiles = least_large_tiles;
    e.set_arithmetic(arithmetic);
    size_t dispatches = 0;
    std::vector<float> y = test::Multiply(e, weight, x, bias, &dispatches);
    EXPECT_EQ(dispatches, e.shape().rows > kMatvecRows ? 2u : 1u);
    return y;
}

void ExpectMatrixProducts(const RandomWeight& weight, const std::vector<float>& x,
                          const std::vector<float>& bias, const std::vector<float>& y, bool exact) {
    const auto cols = static_cast<size_t>(weight.cols), n = static_cast<size_t>(weight.rows);
    ASSERT_EQ(y.size() * cols, x.size() * n);
    for (size_t i = 0; i < y.size(); ++i) {
        const size_t t = i / n, r = i % n;
        HalfProduct want = HalfProductOf(weight, static_cast<int64_t>(r),
                                         std::span(x).subspan(t * cols, cols), exact);
        const double added = bias.empty() ? 0 : double{bias[r]};
        const double error = std::fabs(double{y[i]} - want.value - added);
        ASSERT_TRUE(error <= want.bound + 0x1p-23 * std::fabs(added))
            << Info(weight.dtype).name << " " << n << " x " << cols << ": row " << t << " output "
            << r << " is " << y[i] << ", exact " << want.value + added;
    }
}

// Tests of matrix units of a certain size (matrix_units_test.py) do run with them.
TEST(VulkanUnits, HaveTheTestedSize) {
    WEFT_VULKAN(device);
    const char* const size = std::getenv("WEFT_TEST_MATRIX_UNIT");
    if (size == nullptr) GTEST_SKIP() << "no size is asked for";
    const auto [m, n, k] = device->description().matrix_unit;
    EXPECT_EQ(fmt::format("{}x{}x{}", m, n, k), size);
    EXPECT_EQ(MatrixArithmetic(device).matrix, Arithmetic::Matrix::kUnits);
}

// Tiles of 128 rows, which fit only on a GPU.
TEST(VulkanMatrix, LargeTiles) {
    WEFT_VULKAN(device);
    for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
        for (const auto& [rows, n] : {std::pair{128, 256}, {200, 130}, {65, 7}}) {
            const int64_t cols = dtype == DType::kF16 ? 520 : 512;
            const RandomWeight weight(dtype, n, cols, 5);
            const std::vector<float> x = RandomValues(rows * cols, 6), bias = RandomValues(n, 7);
            ExpectMatrixProducts(weight, x, bias, MatrixMultiplied(device, weight, x, bias, 1),
                                 false);
            if (HasFatalFailure()) return;
        }
    }
}

// All shapes with some types, one shape with each type (compiling kernels takes most of the time).
TEST(VulkanMatrix, AllTypesAndShapes) {
    WEFT_VULKAN(device);
    uint32_t seed = 0;
    for (const DType dtype : kMatrixTypes) {
        for (const auto& [rows, n] : {std::pair{40, 64}, {9, 33}, {17, 7}, {70, 130}}) {
            ++seed;
            if (n != 64 && dtype != DType::kF16 && dtype != DType::kQ8_0) continue;
            const int64_t cols = MatrixCols(dtype, seed);
            const RandomWeight weight(dtype, n, cols, seed);
            const std::vector<float> x = RandomValues(rows * cols, seed);
            const std::vector<float> bias =
                seed % 2 == 0 ? std::vector<float>{} : RandomValues(n, seed + 1);
            ExpectMatrixProducts(weight, x, bias, MatrixMultiplied(device, weight, x, bias), false);
            if (HasFatalFailure()) return;
        }
    }
}

// Values exact in float16: only the order of sums differs.
TEST(VulkanMatrix, HalvesAreExact) {
    WEFT_VULKAN(device);
    for (const int64_t rows : {9, 70}) {
        const int64_t cols = 101, n = 66;
        const RandomWeight weight(DType::kF16, n, cols, 2);
        std::vector<float> x = RandomValues(rows * cols, 3);
        for (float& value : x) value = std::ldexp(std::round(value * 256), -5);
        ExpectMatrixProducts(weight, x, {}, MatrixMultiplied(device, weight, x), true);
    }
}

// The bits of products with each shape in turn.
std::vector<std::vector<float>> ByShapes(const std::shared_ptr<gpu::Device>& device,
                                         const RandomWeight& weight, int64_t rows,
                                         std::span<const TileShape> shapes, int64_t split_groups) {
    const std::vector<float> x = RandomValues(rows * weight.cols, 9);
    const std::vector<float> bias = RandomValues(weight.rows, 10);
    std::vector<std::vector<float>> all;
    for (const TileShape& shape : shapes) {
        BenchEmitter e = test::EmitterFor(device, weight, x);
        Arithmetic arithmetic = MatrixArithmetic(device);
        arithmetic.split_groups = split_groups;
        arithmetic.shapes.at(DecodingOf(weight.dtype), TileClassOf(rows)) = shape;
        e.set_arithmetic(arithmetic);
        all.push_back(test::Multiply(e, weight, x, bias));
        ExpectMatrixProducts(weight, x, bias, all.back(), false);
    }
    return all;
}

// All candidates that fit the device, and shapes with several fragments per subgroup, which fit on
// a GPU only with more of them.
TEST(VulkanMatrix, ShapesDoNotChangeBits) {
    WEFT_VULKAN(device);
    const bool emulated = MatrixArithmetic(device).matrix == Arithmetic::Matrix::kEmulated;
    for (const auto& [dtype, rows, cols] :
         {std::tuple{DType::kF16, 61, 277}, {DType::kQ4_K, 15, 1280}, {DType::kQ8_0, 27, 352}}) {
        std::vector<TileShape> shapes =
            TileCandidates(device->description(), TileClassOf(rows), EmulatedIf(emulated));
        const uint32_t tile = shapes.front().rows, subgroup = device->description().subgroup;
        if (emulated && tile == 64) {
            shapes.push_back({2 * subgroup, tile, 64, 32, 1, 1});
            shapes.push_back({4 * subgroup, tile, 64, 32, 2, 1});
        }
        ASSERT_GE(shapes.size(), 2u);
        const RandomWeight weight(dtype, 83, cols, 4);
        const auto bits = ByShapes(device, weight, rows, shapes, 0);
        for (size_t i = 1; i < bits.size(); ++i) {
            ASSERT_EQ(std::memcmp(bits[i].data(), bits[0].data(), bits[0].size() * sizeof(float)),
                      0)
                << Info(dtype).name << ", shape " << i;
        }
    }
}

// Products divided along the columns: near the exact sums, equal for all shapes and numbers of
// rows, and the counters of finished workgroups are ready for the next product.
TEST(VulkanMatrix, PartsOfColumns) {
    WEFT_VULKAN(device);
    const bool emulated = MatrixArithmetic(device).matrix == Arithmetic::Matrix::kEmulated;
    const int64_t cols = 2304, n = 70, rows = 16;
    const RandomWeight weight(DType::kQ8_0, n, cols, 4);
    const std::vector<TileShape> shapes =
        TileCandidates(device->description(), TileClass::k16, EmulatedIf(emulated));
    ASSERT_GE(shapes.size(), 2u);
    const auto whole = ByShapes(device, weight, rows, std::span(shapes).first(1), 0);
    const auto parts = ByShapes(device, weight, rows, std::span(shapes).first(2), 8);
    EXPECT_NE(parts[0], whole[0]);  // the order of sums differs
    EXPECT_EQ(parts[0], parts[1]);

    const std::vector<float> x = RandomValues(rows * cols, 9), bias = RandomValues(n, 10);
    const std::vector<float> some(x.begin(), x.begin() + 11 * cols);
    BenchEmitter e = test::EmitterFor(device, weight, some);
    Arithmetic arithmetic = MatrixArithmetic(device);
    arithmetic.split_groups = 8;
    arithmetic.shapes.at(Decoding::kBlocks, TileClass::k16) = shapes[0];
    e.set_arithmetic(arithmetic);
    for (int i = 0; i < 2; ++i) {
        const std::vector<float> y = test::Multiply(e, weight, some, bias);
        ASSERT_EQ(std::memcmp(y.data(), parts[0].data(), y.size() * sizeof(float)), 0) << i;
    }
}

TEST(VulkanMatrix, RowsDoNotDependOnOthers) {
    WEFT_VULKAN(device);
    for (const DType dtype : {DType::kF16, DType::kQ4_K}) {
        const int64_t cols = 512, n = 70;
        const RandomWeight weight(dtype, n, cols, 8);
        const std::vector<float> x = RandomValues(70 * cols, 9);
        const std::vector<float> all = MatrixMultiplied(device, weight, x);
        for (const int64_t count : {9, 20, 33}) {
            const std::vector<float> part(x.begin() + 11 * cols, x.begin() + (11 + count) * cols);
            const std::vector<float> y = MatrixMultiplied(device, weight, part);
            ASSERT_EQ(std::memcmp(y.data(), all.data() + 11 * n, y.size() * sizeof(float)), 0)
                << Info(dtype).name << " " << count;
        }
    }
}

// Numbers outside the range of float16 at both ends, NaN and infinity.
TEST(VulkanMatrix, HostileRows) {
    WEFT_VULKAN(device);
    const int64_t cols = 256, n = 21, rows = 12;
    for (const DType dtype : {DType::kQ4_0, DType::kQ8_0, DType::kF16}) {
        RandomWeight weight(dtype, n, cols, 4);
        const std::vector<float> bias(static_cast<size_t>(n), 0.5f);
        std::vector<float> x = RandomValues(rows * cols, 6);
        const std::vector<float> plain = MatrixMultiplied(device, weight, x, bias);
        const auto row = [&](int64_t t) { return x.begin() + t * cols; };
        row(0)[255] = NAN;
        row(1)[40] = -INFINITY;
        std::fill_n(row(2), cols, 0.0f);
        for (int64_t c = 0; c < cols; ++c) row(3)[c] *= 0x1p100f;
        for (int64_t c = 0; c < cols; ++c) row(4)[c] *= 0x1p-90f;
        row(5)[7] = 1e6f;
        const std::vector<float> y = MatrixMultiplied(device, weight, x, bias);
        for (int64_t r = 0; r < n; ++r) {
            EXPECT_TRUE(std::isnan(y[static_cast<size_t>(r)]));
            EXPECT_TRUE(std::isnan(y[static_cast<size_t>(n + r)]));
            EXPECT_EQ(y[static_cast<size_t>(2 * n + r)], 0.5f);
        }
        const std::vector<float> x_rest(row(3), row(6)),
            y_rest(y.begin() + 3 * n, y.begin() + 6 * n);
        ExpectMatrixProducts(weight, x_rest, bias, y_rest, false);
        ASSERT_EQ(std::memcmp(y.data() + 6 * n, plain.data() + 6 * n,
                              static_cast<size_t>((rows - 6) * n) * sizeof(float)),
                  0);
    }
}

// Rows of weights of 2^20 and of 2^-20, which blocks can represent.
TEST(VulkanMatrix, WeightsBeyondHalves) {
    WEFT_VULKAN(device);
    const int64_t cols = 64, n = 5, rows = 10;
    RandomWeight weight(DType::kW8, n, cols, 4);
    for (int64_t r = 0; r < n; ++r) {
        const float size = std::ldexp(1.0f, static_cast<int>(20 * (r % 3) - 20));
        for (size_t b = 0; b < static_cast<size_t>(cols / 32); ++b) {
            // A scale and a zero point: a float32 whose low byte is the zero point.
            std::byte* block = weight.blocks.data() +
                               static_cast<size_t>(r * RowBytes(DType::kW8, cols)) +
                               b * static_cast<size_t>(Info(DType::kW8).block_bytes);
            const uint32_t word = (std::bit_cast<uint32_t>(size) & ~0xffu) | 131;
            std::memcpy(block, &word, sizeof word);
        }
    }
    DequantizeRow(DType::kW8, weight.blocks, weight.floats);
    EXPECT_GT(std::fabs(weight.Row(2)[0]), 65504.0f);
    const std::vector<float> x = RandomValues(rows * cols, 7);
    ExpectMatrixProducts(weight, x, {}, MatrixMultiplied(device, weight, x), false);
}

TEST(VulkanMatrix, AMatrixForEachHead) {
    WEFT_VULKAN(device);
    const int64_t heads = 3, n = 10, rows = 21;
    for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
        const int64_t cols = MatrixCols(dtype, 0);
        const RandomWeight weight(dtype, heads * n, cols, 51);
        const std::vector<float> x = RandomValues(rows * heads * cols, 52);
        BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
        e.set_arithmetic(MatrixArithmetic(device));
        const ValueId in = e.AddFloats({kTokens, heads * cols}, x);
        const ValueId w = e.AddWeight(dtype, {heads, n, cols}, weight.blocks);
        const ValueId y = e.AddFloats({kTokens, heads * n});
        ASSERT_TRUE(e.Lower(program::HeadMatMul{}, {in, w}, {y}).ok());
        const Status run = e.Run();
        ASSERT_TRUE(run.ok()) << run.error().message;
        const std::vector<float> got = e.Floats(y);
        for (int64_t i = 0; i < rows * heads * n; ++i) {
            const int64_t t = i / (heads * n), row = i % (heads * n);
            const HalfProduct want = HalfProductOf(
                weight, row,
                std::span(x).subspan(static_cast<size_t>((t * heads + row / n) * cols),
                                     static_cast<size_t>(cols)),
                false);
            const double error = std::fabs(double{got[static_cast<size_t>(i)]} - want.value);
            ASSERT_TRUE(error <= want.bound) << Info(dtype).name << " " << i;
        }
    }
}

// Slots whose experts are here; slots of other experts, which nobody wrote, are NaN.
TEST(VulkanMatrix, Experts) {
    WEFT_VULKAN(device);
    const int64_t used = 3, held = 4, first = 2, n = 19, rows = 40;
    for (const bool by_token : {true, false}) {
        const DType dtype = by_token ? DType::kQ4_K : DType::kMXFP4;
        const int64_t cols = MatrixCols(dtype, 0), slots = rows * used;
        const RandomWeight weight(dtype, held * n, cols, 3);
        std::vector<float> x = RandomValues((by_token ? rows : slots) * cols, 3);
        std::vector<int32_t> choice(static_cast<size_t>(slots));
        for (int64_t slot = 0; slot < slots; ++slot) {
            const int64_t expert = (slot / used * 5 + slot % used * 2) % 7;
            choice[static_cast<size_t>(slot)] = static_cast<int32_t>(expert);
            const bool here = expert >= first && expert < first + held;
            if (!by_token && !here) std::fill_n(x.begin() + slot * cols, cols, NAN);
        }
        BenchEmitter e(device, StepShape{.rows = static_cast<int32_t>(rows)});
        e.set_arithmetic(MatrixArithmetic(device));
        const ValueId in =
            by_token ? e.AddFloats({kTokens, cols}, x) : e.AddFloats({kTokens, used, cols}, x);
        const ValueId ids = e.AddInts({kTokens, used}, choice);
        const ValueId w = e.AddWeight(dtype, {held, n, cols}, weight.blocks);
        const ValueId y = e.AddFloats({kTokens, used, n});
        ASSERT_TRUE(e.Lower(program::ExpertMatMul{.first_expert = first}, {in, ids, w}, {y}).ok());
        const Status run = e.Run();
        ASSERT_TRUE(run.ok()) << run.error().message;
        const std::vector<float> got = e.Floats(y);
        for (int64_t i = 0; i < slots * n; ++i) {
            const int64_t slot = i / n, expert = choice[static_cast<size_t>(slot)] - first;
            if (expert < 0 || expert >= held) continue;
            const int64_t row = by_token ? slot / used : slot;
            const HalfProduct want = HalfProductOf(
                weight, expert * n + i % n,
                std::span(x).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)),
                false);
            const double error = std::fabs(double{got[static_cast<size_t>(i)]} - want.value);
            ASSERT_TRUE(error <= want.bound) << Info(dtype).name << " " << i;
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
