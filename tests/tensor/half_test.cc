// Every f16 and every bf16, both ways, against their definitions in exact double arithmetic.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/half_rows.h"

namespace weft {
namespace {

struct Format {
    int mantissa_bits, exponent_bits;
    float (*to_float)(uint16_t);
    uint16_t (*from_float)(float);

    int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
    uint16_t Infinity() const {
        return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    }
    // The value of a finite pattern.
    double Value(uint16_t bits) const {
        const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
        const int mantissa = bits & ((1 << mantissa_bits) - 1);
        const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - Bias() - mantissa_bits)
                                               : std::ldexp(mantissa + (1 << mantissa_bits),
                                                            exponent - Bias() - mantissa_bits);
        return bits & 0x8000 ? -magnitude : magnitude;
    }
};

const Format kF16 = {10, 5, F16ToF32, F32ToF16};
const Format kBF16 = {7, 8, BF16ToF32, F32ToBF16};

class Half : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Formats, Half, testing::Values(kF16, kBF16), [](const auto& test) {
    return test.param.mantissa_bits == 10 ? std::string("F16") : std::string("BF16");
});

TEST_P(Half, EveryPatternRoundTrips) {
    const Format& format = GetParam();
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = format.to_float(half);
        const uint16_t magnitude = half & 0x7fff;
        if (magnitude > format.Infinity()) {
            ASSERT_TRUE(std::isnan(value)) << bits;
            const uint16_t back = format.from_float(value);
            ASSERT_GT(back & 0x7fff, format.Infinity()) << bits << ": no longer a NaN";
            continue;
        }
        if (magnitude == format.Infinity()) {
            ASSERT_TRUE(std::isinf(value)) << bits;
        } else {
            ASSERT_EQ(value, format.Value(half)) << bits;
        }
        ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
        ASSERT_EQ(format.from_float(value), half);
    }
}

// Below, at and above the midpoint between each pattern and the next, for both signs.
TEST_P(Half, RoundsToNearestAndTiesToEven) {
    const Format& format = GetParam();
    for (uint16_t low = 0; low < format.Infinity(); ++low) {
        const auto high = static_cast<uint16_t>(low + 1);
        const double top =
            high == format.Infinity() ? std::ldexp(1.0, format.Bias() + 1) : format.Value(high);
        const auto middle = static_cast<float>((format.Value(low) + top) / 2);
        if (static_cast<double>(middle) != (format.Value(low) + top) / 2) continue;  // bf16, tiny
        const float below = std::nextafter(middle, 0.0f);
        const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
        ASSERT_EQ(format.from_float(below), low) << low;
        ASSERT_EQ(format.from_float(middle), low % 2 == 0 ? low : high) << low;
        ASSERT_EQ(format.from_float(above), high) << low;
        ASSERT_EQ(format.from_float(-below), 0x8000 | low) << low;
        ASSERT_EQ(format.from_float(-above), 0x8000 | high) << low;
    }
}

TEST_P(Half, RandomFloatsGoToTheNearest) {
    const Format& format = GetParam();
    std::mt19937 random(7);
    for (int i = 0; i < 200'000; ++i) {
        const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
        if (!std::isfinite(value)) continue;
        const uint16_t half = format.from_float(value);
        const uint16_t magnitude = half & 0x7fff;
        if (magnitude == format.Infinity()) {
            const double step = std::ldexp(1.0, format.Bias() - format.mantissa_bits - 1);
            ASSERT_GE(std::fabs(value), std::ldexp(1.0, format.Bias() + 1) - step) << value;
            continue;
        }
        ASSERT_LT(magnitude, format.Infinity()) << value;
        const double error = std::fabs(format.Value(half) - value);
        if (magnitude > 0) {
            ASSERT_LE(error, std::fabs(format.Value(static_cast<uint16_t>(half - 1)) - value));
        }
        if (magnitude + 1 < format.Infinity()) {
            ASSERT_LE(error, std::fabs(format.Value(static_cast<uint16_t>(half + 1)) - value));
        }
    }
}

// Conversions of rows, of any length and at any address, equal those of single numbers.
TEST_P(Half, RowsAreTheSame) {
    const Format& format = GetParam();
    const DType dtype = format.mantissa_bits == 10 ? DType::kF16 : DType::kBF16;
    std::vector<uint16_t> halves;
    for (uint32_t bits = 0; bits < 65536; ++bits) halves.push_back(static_cast<uint16_t>(bits));
    std::vector<float> floats;
    std::mt19937 random(9);
    for (int i = 0; i < 100'000; ++i) {
        // (Any float, and floats with the exponents of F16.)
        const auto bits = static_cast<uint32_t>(random());
        const uint32_t near = 0x32000000u + (bits & 0x0fffffffu) * 3 / 2;
        floats.push_back(std::bit_cast<float>(i % 2 == 0 ? bits : near | (bits & 0x80000000u)));
    }
    size_t at = 0;
    for (size_t length = 0; at + length < halves.size(); at += length, length += 3) {
        std::vector<std::byte> bytes(2 * length + 1);
        std::memcpy(bytes.data() + 1, halves.data() + at, 2 * length);
        std::vector<float> wide(length + 1, 7.0f);
        WidenRow(dtype, bytes.data() + 1, std::span(wide).first(length));
        ASSERT_EQ(wide.back(), 7.0f);
        for (size_t i = 0; i < length; ++i) {
            const float expected = format.to_float(halves[at + i]);
            if (std::isnan(expected)) {
                ASSERT_TRUE(std::isnan(wide[i]));
            } else {
                ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected));
            }
        }
    }
    at = 0;
    for (size_t length = 0; at + length < floats.size(); at += length, length += 3) {
        std::vector<std::byte> bytes(2 * length + 2, std::byte{7});
        NarrowRow(dtype, std::span(floats).subspan(at, length), bytes.data() + 1);
        ASSERT_EQ(bytes.back(), std::byte{7});
        for (size_t i = 0; i < length; ++i) {
            uint16_t half = 0;
            std::memcpy(&half, bytes.data() + 1 + 2 * i, 2);
            if (std::isnan(floats[at + i])) {
                ASSERT_TRUE(std::isnan(format.to_float(half)));
            } else {
                ASSERT_EQ(half, format.from_float(floats[at + i])) << floats[at + i];
            }
        }
    }
}

}  // namespace
}  // namespace weft
