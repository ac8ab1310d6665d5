// 8-bit codes of optimizer states: nearest codes, and stable narrowing.
#include "tensor/dynamic_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace weft {
namespace {

// On both sides of each boundary between two codes; the boundary belongs to the greater code.
TEST(DynamicCodes, NearestAtEveryMidpoint) {
    for (const DynamicCodes* codes : {&SignedCodes(), &UnsignedCodes()}) {
        for (int c = 0; c < 255; ++c) {
            const double low = codes->value(static_cast<uint8_t>(c));
            const double high = codes->value(static_cast<uint8_t>(c + 1));
            const auto middle = static_cast<float>((low + high) / 2);
            EXPECT_EQ(codes->Nearest(std::nextafter(middle, -2.0f)), c);
            EXPECT_EQ(codes->Nearest(middle), c + 1);
            EXPECT_EQ(codes->Nearest(static_cast<float>(low)), c);
        }
        EXPECT_EQ(codes->Nearest(1), 255);
        EXPECT_EQ(codes->value(codes->Nearest(0)), 0);
        EXPECT_EQ(codes->value(codes->Nearest(-0.0f)), 0);
        EXPECT_EQ(codes->value(codes->Nearest(1e-30f)), 0);
        EXPECT_EQ(codes->Nearest(NAN), 0);
    }
}

// Non-finite numbers have codes, too, and the finite ones of a block keep their scale next to NaNs.
TEST(DynamicCodes, NarrowsNonFiniteValues) {
    const std::vector<float> values = {NAN, -3, 1.5f, -NAN};
    std::vector<uint8_t> narrow(values.size());
    EXPECT_EQ(Narrow(SignedCodes(), values, narrow), 3);
    EXPECT_EQ(narrow[0], 0);
    EXPECT_EQ(SignedCodes().value(narrow[1]), -1);
    EXPECT_EQ(narrow[3], 0);
    EXPECT_EQ(Narrow(SignedCodes(), std::vector<float>{1, INFINITY, 0, -1}, narrow), INFINITY);
    EXPECT_EQ(SignedCodes().value(narrow[0]), 0);
}

// Narrowing is idempotent, whatever the sign of the block's largest number.
TEST(DynamicCodes, NarrowingIsIdempotent) {
    for (const bool is_signed : {true, false}) {
        const DynamicCodes codes(is_signed);
        std::mt19937 random(5);
        std::lognormal_distribution<float> sizes(0, 4);
        for (int block = 0; block < 200; ++block) {
            std::vector<float> values(static_cast<size_t>(1 + random() % kStateBlock));
            for (float& x : values) x = sizes(random) * (is_signed && random() % 2 == 0 ? -1 : 1);
            std::vector<uint8_t> narrow(values.size()), again(values.size());
            const float scale = Narrow(codes, values, narrow);
            std::vector<float> wide(values.size());
            Widen(codes, narrow, scale, wide);
            EXPECT_EQ(Narrow(codes, wide, again), scale);
            EXPECT_EQ(again, narrow);
            for (size_t i = 0; i < values.size(); ++i) {  // the nearest code
                double best = INFINITY;
                for (int c = 0; c < 256; ++c) {
                    const double value = codes.value(static_cast<uint8_t>(c));
                    best = std::min(best, std::abs(value - double{values[i]} / scale));
                }
                const double error =
                    std::abs(double{codes.value(narrow[i])} - double{values[i]} / scale);
                EXPECT_TRUE(error <= best + 0x1p-23) << values[i] / scale;
            }
        }
        std::vector<uint8_t> zeros(4);
        EXPECT_EQ(Narrow(codes, std::vector<float>(4), zeros), 0.0f);
        std::vector<float> back(4, 1.0f);
        Widen(codes, zeros, 0, back);
        EXPECT_EQ(back, std::vector<float>(4));
    }
}

}  // namespace
}  // namespace weft
