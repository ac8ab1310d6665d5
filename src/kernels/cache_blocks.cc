#include "kernels/cache_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

void StoreHalf(std::byte* to, float value) {
    const uint16_t half = F32ToF16(value);
    std::memcpy(to, &half, sizeof half);
}

// Codes are computed by the unrounded scale, as llama.cpp does.
float Inverse(float scale) {
    return scale == 0 ? 0.0f : 1.0f / scale;
}

// x without its fraction, in [0, most].
int Whole(float x, int most) {
    return x > 0 ? static_cast<int>(std::min(x, static_cast<float>(most))) : 0;
}

// Byte i of 16 holds elements i (low nibble) and i + 16.
void StoreNibbles(const int (&codes)[kCacheBlock], std::byte* to) {
    for (int i = 0; i < 16; ++i) {
        to[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
    }
}

// The largest magnitude maps to 127. Values are rounded half away from zero.
void EncodeQ8_0(const float* x, std::byte* block) {
    float largest = 0;
    for (int i = 0; i < kCacheBlock; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    const float scale = largest / 127, inverse = Inverse(scale);
    StoreHalf(block, scale);
    for (int i = 0; i < kCacheBlock; ++i) {
        const float code = std::round(x[i] * inverse);
        block[2 + i] = static_cast<std::byte>(
            static_cast<int8_t>(std::fmin(std::fmax(code, -127.0f), 127.0f)));
    }
}

// The value of largest magnitude maps to code 0, which means -8.
void EncodeQ4_0(const float* x, std::byte* block) {
    float peak = 0;
    for (int i = 0; i < kCacheBlock; ++i) {
        if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
    }
    const float scale = peak / -8, inverse = Inverse(scale);
    StoreHalf(block, scale);
    int codes[kCacheBlock];
    for (int i = 0; i < kCacheBlock; ++i) codes[i] = Whole(x[i] * inverse + 8.5f, 15);
    StoreNibbles(codes, block + 2);
}

// The least value maps to code 0, the largest to code 31. Bit i of a u32 is the fifth bit of
// element i.
void EncodeQ5_1(const float* x, std::byte* block) {
    float least = std::numeric_limits<float>::max(), most = -least;
    for (int i = 0; i < kCacheBlock; ++i) {
        if (x[i] < least) least = x[i];
        if (x[i] > most) most = x[i];
    }
    const float scale = (most - least) / 31, inverse = Inverse(scale);
    StoreHalf(block, scale);
    StoreHalf(block + 2, least);
    int codes[kCacheBlock];
    uint32_t fifths = 0;
    for (int i = 0; i < kCacheBlock; ++i) {
        codes[i] = Whole((x[i] - least) * inverse + 0.5f, 31);
        fifths |= static_cast<uint32_t>(codes[i] >> 4) << i;
    }
    std::memcpy(block + 4, &fifths, sizeof fifths);
    StoreNibbles(codes, block + 8);
}

}  // namespace

void EncodeCacheBlock(DType dtype, const float* x, std::byte* block) {
    WEFT_CHECK(dtype == DType::kQ8_0 || dtype == DType::kQ5_1 || dtype == DType::kQ4_0);
    if (dtype == DType::kQ8_0) EncodeQ8_0(x, block);
    if (dtype == DType::kQ5_1) EncodeQ5_1(x, block);
    if (dtype == DType::kQ4_0) EncodeQ4_0(x, block);
    const bool has_nan = std::any_of(x, x + kCacheBlock, [](float v) { return std::isnan(v); });
    if (has_nan) StoreHalf(block, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace weft::kernels
