#include "tensor/quant.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace weft {
namespace {

uint8_t ByteAt(const std::byte* p, int i) {
    return std::to_integer<uint8_t>(p[i]);
}

uint16_t LoadU16(const std::byte* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

float LoadF16(const std::byte* p) {
    return F16ToF32(LoadU16(p));
}

// Stores `value` as f16 and gives back what the f16 holds: quantizers must divide by that.
float StoreF16(std::byte* p, float value) {
    const uint16_t half = F32ToF16(value);
    std::memcpy(p, &half, sizeof half);
    return F16ToF32(half);
}

float Inverse(float value) {
    return value == 0 ? 0.0f : 1.0f / value;
}

int RoundClamped(float value, int low, int high) {
    if (!(value > static_cast<float>(low))) return low;  // NaN too
    if (value > static_cast<float>(high)) return high;
    return static_cast<int>(std::nearbyint(value));
}

// The value of largest magnitude, with its sign.
float SignedPeak(const float* x, int count) {
    float peak = 0;
    for (int i = 0; i < count; ++i) {
        if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
    }
    return peak;
}

// ---- 16-bit floats -----------------------------------------------------------------------------

template <float (*kToFloat)(uint16_t)>
void DecodeHalf(const std::byte* src, float* dst) {
    *dst = kToFloat(LoadU16(src));
}

template <uint16_t (*kFromFloat)(float)>
void EncodeHalf(const float* src, std::byte* dst) {
    const uint16_t half = kFromFloat(*src);
    std::memcpy(dst, &half, sizeof half);
}

void DecodeF32(const std::byte* src, float* dst) {
    std::memcpy(dst, src, sizeof *dst);
}
void EncodeF32(const float* src, std::byte* dst) {
    std::memcpy(dst, src, sizeof *src);
}

// ---- Q4_0: f16 scale, 16 bytes; byte i holds elements i (low nibble) and i + 16 -----------------

void DecodeQ4_0(const std::byte* src, float* dst) {
    const float d = LoadF16(src);
    for (int i = 0; i < 16; ++i) {
        const int q = ByteAt(src, 2 + i);
        dst[i] = static_cast<float>((q & 15) - 8) * d;
        dst[i + 16] = static_cast<float>((q >> 4) - 8) * d;
    }
}

void EncodeQ4_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, SignedPeak(src, 32) / -8));
    for (int i = 0; i < 16; ++i) {
        const int low = RoundClamped(src[i] * inverse + 8, 0, 15);
        const int high = RoundClamped(src[i + 16] * inverse + 8, 0, 15);
        dst[2 + i] = static_cast<std::byte>(low | high << 4);
    }
}

// ---- Q4_1: f16 scale, f16 minimum, 16 bytes as in Q4_0 ------------------------------------------

void DecodeQ4_1(const std::byte* src, float* dst) {
    const float d = LoadF16(src);
    const float m = LoadF16(src + 2);
    for (int i = 0; i < 16; ++i) {
        const int q = ByteAt(src, 4 + i);
        dst[i] = static_cast<float>(q & 15) * d + m;
        dst[i + 16] = static_cast<float>(q >> 4) * d + m;
    }
}

void EncodeQ4_1(const float* src, std::byte* dst) {
    const auto [low_at, high_at] = std::minmax_element(src, src + 32);
    const float inverse = Inverse(StoreF16(dst, (*high_at - *low_at) / 15));
    const float m = StoreF16(dst + 2, *low_at);
    for (int i = 0; i < 16; ++i) {
        const int low = RoundClamped((src[i] - m) * inverse, 0, 15);
        const int high = RoundClamped((src[i + 16] - m) * inverse, 0, 15);
        dst[4 + i] = static_cast<std::byte>(low | high << 4);
    }
}

// ---- Q8_0: f16 scale, 32 int8 -------------------------------------------------------------------

void DecodeQ8_0(const std::byte* src, float* dst) {
    const float d = LoadF16(src);
    for (int i = 0; i < 32; ++i) {
        dst[i] = static_cast<float>(static_cast<int8_t>(ByteAt(src, 2 + i))) * d;
    }
}

void EncodeQ8_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, std::fabs(SignedPeak(src, 32)) / 127));
    for (int i = 0; i < 32; ++i) {
        dst[2 + i] = static_cast<std::byte>(RoundClamped(src[i] * inverse, -127, 127));
    }
}

// ---- Q4_K: 256 elements in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum ------
// f16 d, f16 dmin, 12 bytes of packed scales and minima, 128 bytes: byte i of chunk c (32 bytes)
// holds element i of sub-block 2c (low nibble) and of sub-block 2c + 1.

void DecodeQ4_K(const std::byte* src, float* dst) {
    const float d = LoadF16(src);
    const float dmin = LoadF16(src + 2);
    for (int j = 0; j < 8; ++j) {
        const Q4KScale sub = LoadQ4KScale(src + 4, j);
        const float scale = d * static_cast<float>(sub.scale);
        const float min = dmin * static_cast<float>(sub.min);
        const std::byte* quants = src + 16 + (j / 2) * 32;
        for (int i = 0; i < 32; ++i) {
            const int q = (ByteAt(quants, i) >> (j % 2) * 4) & 15;
            dst[j * 32 + i] = scale * static_cast<float>(q) - min;
        }
    }
}

void EncodeQ4_K(const float* src, std::byte* dst) {
    float scales[8], mins[8], top_scale = 0, top_min = 0;
    for (int j = 0; j < 8; ++j) {
        const auto [low, high] = std::minmax_element(src + j * 32, src + j * 32 + 32);
        mins[j] = std::max(0.0f, -*low);
        scales[j] = std::max(0.0f, *high + mins[j]) / 15;
        top_scale = std::max(top_scale, scales[j]);
        top_min = std::max(top_min, mins[j]);
    }
    std::fill(dst, dst + 144, std::byte{0});
    const float d = StoreF16(dst, top_scale / 63);
    const float dmin = StoreF16(dst + 2, top_min / 63);
    for (int j = 0; j < 8; ++j) {
        const Q4KScale sub{RoundClamped(scales[j] * Inverse(d), 0, 63),
                           RoundClamped(mins[j] * Inverse(dmin), 0, 63)};
        StoreQ4KScale(dst + 4, j, sub);
        const float inverse = Inverse(d * static_cast<float>(sub.scale));
        const float min = dmin * static_cast<float>(sub.min);
        for (int i = 0; i < 32; ++i) {
            const int q = RoundClamped((src[j * 32 + i] + min) * inverse, 0, 15);
            dst[16 + (j / 2) * 32 + i] |= static_cast<std::byte>(q << (j % 2) * 4);
        }
    }
}

// ---- Q6_K: 256 elements in 16 sub-blocks of 16, each with an int8 scale -------------------------
// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, f16 d. Per half of 128:
// element 32g + l has its low nibble in byte 32(g % 2) + l, upper nibble of it for g >= 2, and its
// high pair in bits 2g of byte l.

void DecodeQ6_K(const std::byte* src, float* dst) {
    const float d = LoadF16(src + 208);
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128, g = (i / 32) % 4, l = i % 32;
        const int low = (ByteAt(src, half * 64 + (g % 2) * 32 + l) >> (g / 2) * 4) & 15;
        const int high = (ByteAt(src, 128 + half * 32 + l) >> 2 * g) & 3;
        const auto scale = static_cast<int8_t>(ByteAt(src, 192 + i / 16));
        dst[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
    }
}

void EncodeQ6_K(const float* src, std::byte* dst) {
    float scales[16], top = 0;
    for (int j = 0; j < 16; ++j) {
        scales[j] = SignedPeak(src + j * 16, 16) / -32;
        if (std::fabs(scales[j]) > std::fabs(top)) top = scales[j];
    }
    std::fill(dst, dst + 210, std::byte{0});
    const float d = StoreF16(dst + 208, top / -128);
    for (int i = 0; i < 256; ++i) {
        const int scale = RoundClamped(scales[i / 16] * Inverse(d), -128, 127);
        dst[192 + i / 16] = static_cast<std::byte>(scale);
        const float inverse = Inverse(d * static_cast<float>(scale));
        const int q = RoundClamped(src[i] * inverse, -32, 31) + 32;
        const int half = i / 128, g = (i / 32) % 4, l = i % 32;
        dst[half * 64 + (g % 2) * 32 + l] |= static_cast<std::byte>((q & 15) << (g / 2) * 4);
        dst[128 + half * 32 + l] |= static_cast<std::byte>((q >> 4) << 2 * g);
    }
}

// ---- Rows ---------------------------------------------------------------------------------------

template <void (*kDecode)(const std::byte*, float*)>
void DecodeRow(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
    const DTypeInfo& info = Info(dtype);
    const int64_t blocks = static_cast<int64_t>(dst.size()) / info.block_elements;
    for (int64_t b = 0; b < blocks; ++b) {
        kDecode(src.data() + b * info.block_bytes, dst.data() + b * info.block_elements);
    }
}

template <void (*kEncode)(const float*, std::byte*)>
void EncodeRow(DType dtype, std::span<const float> src, std::span<std::byte> dst) {
    const DTypeInfo& info = Info(dtype);
    const int64_t blocks = static_cast<int64_t>(src.size()) / info.block_elements;
    for (int64_t b = 0; b < blocks; ++b) {
        kEncode(src.data() + b * info.block_elements, dst.data() + b * info.block_bytes);
    }
}

void CheckSizes(DType dtype, size_t bytes, size_t elements) {
    const auto count = static_cast<int64_t>(elements);
    WEFT_CHECK(count % Info(dtype).block_elements == 0);
    WEFT_CHECK(static_cast<int64_t>(bytes) >= RowBytes(dtype, count));
}

}  // namespace

Q4KScale LoadQ4KScale(const std::byte* packed, int j) {
    if (j < 4) return {ByteAt(packed, j) & 63, ByteAt(packed, j + 4) & 63};
    return {(ByteAt(packed, j + 4) & 15) | (ByteAt(packed, j - 4) >> 6) << 4,
            (ByteAt(packed, j + 4) >> 4) | (ByteAt(packed, j) >> 6) << 4};
}

void StoreQ4KScale(std::byte* packed, int j, Q4KScale value) {
    if (j < 4) {
        packed[j] |= static_cast<std::byte>(value.scale);
        packed[j + 4] |= static_cast<std::byte>(value.min);
        return;
    }
    packed[j + 4] |= static_cast<std::byte>((value.scale & 15) | (value.min & 15) << 4);
    packed[j - 4] |= static_cast<std::byte>((value.scale >> 4) << 6);
    packed[j] |= static_cast<std::byte>((value.min >> 4) << 6);
}

void DequantizeRow(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
    CheckSizes(dtype, src.size(), dst.size());
    switch (dtype) {
        case DType::kF32: return DecodeRow<DecodeF32>(dtype, src, dst);
        case DType::kF16: return DecodeRow<DecodeHalf<F16ToF32>>(dtype, src, dst);
        case DType::kBF16: return DecodeRow<DecodeHalf<BF16ToF32>>(dtype, src, dst);
        case DType::kQ4_0: return DecodeRow<DecodeQ4_0>(dtype, src, dst);
        case DType::kQ4_1: return DecodeRow<DecodeQ4_1>(dtype, src, dst);
        case DType::kQ8_0: return DecodeRow<DecodeQ8_0>(dtype, src, dst);
        case DType::kQ4_K: return DecodeRow<DecodeQ4_K>(dtype, src, dst);
        case DType::kQ6_K: return DecodeRow<DecodeQ6_K>(dtype, src, dst);
        case DType::kI32:
        case DType::kF64: break;
    }
    WEFT_CHECK(!"I32 holds no floats");
}

void QuantizeRow(DType dtype, std::span<const float> src, std::span<std::byte> dst) {
    CheckSizes(dtype, dst.size(), src.size());
    switch (dtype) {
        case DType::kF32: return EncodeRow<EncodeF32>(dtype, src, dst);
        case DType::kF16: return EncodeRow<EncodeHalf<F32ToF16>>(dtype, src, dst);
        case DType::kBF16: return EncodeRow<EncodeHalf<F32ToBF16>>(dtype, src, dst);
        case DType::kQ4_0: return EncodeRow<EncodeQ4_0>(dtype, src, dst);
        case DType::kQ4_1: return EncodeRow<EncodeQ4_1>(dtype, src, dst);
        case DType::kQ8_0: return EncodeRow<EncodeQ8_0>(dtype, src, dst);
        case DType::kQ4_K: return EncodeRow<EncodeQ4_K>(dtype, src, dst);
        case DType::kQ6_K: return EncodeRow<EncodeQ6_K>(dtype, src, dst);
        case DType::kI32:
        case DType::kF64: break;
    }
    WEFT_CHECK(!"I32 holds no floats");
}

}  // namespace weft
