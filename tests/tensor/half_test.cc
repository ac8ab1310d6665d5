// Every f16 and every bf16, both ways, against their definitions in exact double arithmetic.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

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
    // The value of a pattern that is neither infinite nor NaN.
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

TEST_P(Half, EveryPatternHasItsValueAndComesBack) {
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

// Between each pattern and the next: below, at and above the midpoint, of both signs.
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

}  // namespace
}  // namespace weft
