#include "tensor/quant.h"
#include "support/paths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace weft {
namespace {

std::vector<DType> FloatTypes() {
    std::vector<DType> types;
    for (const DTypeInfo& info : kFileDTypes) {
        if (info.dtype != DType::kI32) types.push_back(info.dtype);
    }
    return types;
}

uint32_t ReadU32(const char* p) {
    uint32_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

// Equals gguf-py's results for the same blocks, bit for bit (tools/make_quant_golden.py).
TEST(Quant, DequantizesAsGguf) {
    std::ifstream file(support::TestData("/quant_golden.bin"), std::ios::binary);
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    size_t at = 0, types = 0;
    for (; at < data.size(); ++types) {
        ASSERT_LE(at + 12, data.size());
        const auto dtype = DTypeOfGguf(ReadU32(&data[at]));
        const size_t bytes = ReadU32(&data[at + 4]), count = ReadU32(&data[at + 8]);
        ASSERT_TRUE(dtype.has_value());
        ASSERT_LE(at + 12 + bytes + count * 4, data.size());
        std::vector<float> expected(count), actual(count);
        std::memcpy(expected.data(), &data[at + 12 + bytes], count * 4);
        DequantizeRow(*dtype, std::as_bytes(std::span(data).subspan(at + 12, bytes)), actual);
        for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(expected[i], actual[i]) << Info(*dtype).name << " element " << i;
        }
        at += 12 + bytes + count * 4;
    }
    EXPECT_EQ(types, FloatTypes().size());
}

std::vector<DType> TypesWithARounding() {
    std::vector<DType> types = FloatTypes();
    std::erase_if(types, [](DType dtype) { return !CanQuantize(dtype); });
    return types;
}

// A generous bound on the error of quantizing a block with these extremes: half a step, plus the
// errors of rounding the scales to f16 (2^-11) and to integers.
double ErrorBound(DType dtype, double peak, double range) {
    switch (dtype) {
        case DType::kF32: return 0;
        case DType::kF16: return peak * 0x1p-11;
        case DType::kBF16: return peak * 0x1p-8;
        case DType::kQ4_0: return peak / 8 * (1 + 0x1p-8);  // the far end of the range is clipped
        case DType::kQ4_1: return range / 15 * 0.5 + peak * 0x1p-9;
        case DType::kQ8_0: return peak / 127 * 0.5 + peak * 0x1p-10;
        case DType::kQ4_K: return range / 15 * (0.5 + 15 * 0.5 / 63 + 0.02) + peak / 63;
        case DType::kQ6_K: return peak / 32 * (1 + 32 * 0.5 / 128);
        case DType::kQ5_0: return peak / 16 * (1 + 0x1p-8);
        case DType::kQ5_1: return range / 31 * 0.5 + peak * 0x1p-9;
        case DType::kQ2_K: return range / 3 * (0.5 + 3 * 0.5 / 15 + 0.02) + peak / 15;
        case DType::kQ3_K: return peak / 4 * (1 + 4 * 0.5 / 32);
        case DType::kQ5_K: return range / 31 * (0.5 + 31 * 0.5 / 63 + 0.02) + peak / 63;
        // The widest gap between values is 24 of 127, and the other side ends at 113.
        case DType::kIQ4_NL: return peak * 14 / 127 * (1 + 0x1p-8);
        case DType::kIQ4_XS: return peak * 14 / 127 + peak * 0.5 / 32;
        case DType::kTQ1_0:
        case DType::kTQ2_0: return peak * 0.5 * (1 + 0x1p-8);
        // Values between 8 and 12 at a scale of at least peak / 8; values up to 16 / 8 of it are
        // clipped to 12 / 8.
        case DType::kMXFP4: return peak * 0.25;
        case DType::kIQ1_S:
        case DType::kIQ1_M:
        case DType::kIQ2_XXS:
        case DType::kIQ2_XS:
        case DType::kIQ2_S:
        case DType::kIQ3_XXS:
        case DType::kIQ3_S:
        case DType::kF64:
        case DType::kW4:
        case DType::kW8:
        case DType::kNVFP4:
        case DType::kFP8:
        case DType::kI32: break;
    }
    return 0;
}

TEST(Quant, RoundTripErrorIsWithinOneStep) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (DType dtype : TypesWithARounding()) {
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::vector<float> x(512), y(512);
            const float scale = std::exp(normal(random));
            for (float& value : x) value = normal(random) * scale;
            std::vector<std::byte> blocks(static_cast<size_t>(RowBytes(dtype, 512)));
            QuantizeRow(dtype, x, blocks);
            DequantizeRow(dtype, blocks, y);
            for (size_t b = 0; b < 512; b += 256) {
                double peak = 0, low = 0, high = 0;
                for (size_t i = b; i < b + 256; ++i) {
                    peak = std::max(peak, std::fabs(static_cast<double>(x[i])));
                    low = std::min(low, static_cast<double>(x[i]));
                    high = std::max(high, static_cast<double>(x[i]));
                }
                for (size_t i = b; i < b + 256; ++i) {
                    const double error = std::fabs(static_cast<double>(x[i]) - y[i]);
                    EXPECT_LE(error, ErrorBound(dtype, peak, high - low)) << Info(dtype).name;
                }
            }
        }
    }
}

TEST(Quant, ZerosStayZeros) {
    for (DType dtype : TypesWithARounding()) {
        std::vector<float> x(256, 0.0f), y(256, 1.0f);
        std::vector<std::byte> blocks(static_cast<size_t>(RowBytes(dtype, 256)), std::byte{0xff});
        QuantizeRow(dtype, x, blocks);
        DequantizeRow(dtype, blocks, y);
        for (float value : y) EXPECT_EQ(value, 0.0f) << Info(dtype).name;
    }
}

TEST(Quant, ExtremeFloatsDoNotTrap) {
    const float wild[] = {INFINITY, -INFINITY, NAN, 1e38f, -1e38f, 1e-45f, 0.0f, -0.0f};
    for (DType dtype : TypesWithARounding()) {
        std::vector<float> x(256), y(256);
        for (size_t i = 0; i < x.size(); ++i) x[i] = wild[i * 7 % 8];
        std::vector<std::byte> blocks(static_cast<size_t>(RowBytes(dtype, 256)));
        QuantizeRow(dtype, x, blocks);
        DequantizeRow(dtype, blocks, y);
    }
}

TEST(Half, EveryF16RoundTrips) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = F16ToF32(half);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
        } else {
            EXPECT_EQ(F32ToF16(value), half);
        }
    }
}

}  // namespace
}  // namespace weft
