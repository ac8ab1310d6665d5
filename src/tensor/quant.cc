#include "tensor/quant.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "tensor/quant_bytes.h"

namespace weft {
namespace {

using namespace quant;

// Stores `value` as f16 and returns the rounded value, which quantizers must divide by.
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
// (Exact below 2^24.)
void DecodeI32(const std::byte* src, float* dst) {
    int32_t value = 0;
    std::memcpy(&value, src, sizeof value);
    *dst = static_cast<float>(value);
}
void EncodeF32(const float* src, std::byte* dst) {
    std::memcpy(dst, src, sizeof *src);
}

// ---- Rounding to blocks of 32 (layouts: quant_parts.cc) -----------------------------------------

void EncodeQ4_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, SignedPeak(src, 32) / -8));
    for (int i = 0; i < 16; ++i) {
        const int low = RoundClamped(src[i] * inverse + 8, 0, 15);
        const int high = RoundClamped(src[i + 16] * inverse + 8, 0, 15);
        dst[2 + i] = static_cast<std::byte>(low | high << 4);
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

// The 5-bit codes of 32 elements: nibbles, and a u32 of the fifth bits.
void StoreFiveBits(const int (&codes)[32], std::byte* high, std::byte* nibbles) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(high, &bits, sizeof bits);
    for (int i = 0; i < 16; ++i) {
        nibbles[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
    }
}

void EncodeQ5_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, SignedPeak(src, 32) / -16));
    int codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = RoundClamped(src[i] * inverse + 16, 0, 31);
    StoreFiveBits(codes, dst + 2, dst + 6);
}

void EncodeQ5_1(const float* src, std::byte* dst) {
    const auto [low_at, high_at] = std::minmax_element(src, src + 32);
    const float inverse = Inverse(StoreF16(dst, (*high_at - *low_at) / 31));
    const float m = StoreF16(dst + 2, *low_at);
    int codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = RoundClamped((src[i] - m) * inverse, 0, 31);
    StoreFiveBits(codes, dst + 4, dst + 8);
}

void EncodeQ8_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, std::fabs(SignedPeak(src, 32)) / 127));
    for (int i = 0; i < 32; ++i) {
        dst[2 + i] = static_cast<std::byte>(RoundClamped(src[i] * inverse, -127, 127));
    }
}

// The code whose value is nearest to x.
int Nearest(const std::array<int8_t, 16>& values, float x) {
    int best = 0;
    for (int code = 1; code < 16; ++code) {
        const float off = std::fabs(x - static_cast<float>(values[static_cast<size_t>(code)]));
        if (off < std::fabs(x - static_cast<float>(values[static_cast<size_t>(best)]))) best = code;
    }
    return best;
}

void StoreNearest(const std::array<int8_t, 16>& values, const float* src, float inverse,
                  std::byte* dst) {
    for (int i = 0; i < 16; ++i) {
        const int low = Nearest(values, src[i] * inverse);
        const int high = Nearest(values, src[i + 16] * inverse);
        dst[i] = static_cast<std::byte>(low | high << 4);
    }
}

void EncodeIq4Nl(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst, SignedPeak(src, 32) / kIq4Values[0]));
    StoreNearest(kIq4Values, src, inverse, dst + 2);
}

// The exponent puts the peak between 4 and 8 of E2M1, as the MX specification states (6.3).
void EncodeMxfp4(const float* src, std::byte* dst) {
    const float peak = std::fabs(SignedPeak(src, 32));
    int exponent = 0;
    if (peak > 0 && std::isfinite(peak)) {
        exponent = std::clamp(std::ilogb(peak) - 2 + 127, 0, 254);
    }
    dst[0] = static_cast<std::byte>(exponent);
    StoreNearest(kMxfp4Values, src, std::ldexp(1.0f, 128 - exponent), dst + 1);
}

// ---- Rounding to blocks of 256 ------------------------------------------------------------------

// ORs a code into the field that holds element i (fields: quant_parts.cc).
void AddBitPair(std::byte* p, int i, int code) {
    p[i / 128 * 32 + i % 32] |= static_cast<std::byte>(code << i % 128 / 32 * 2);
}
void AddNibbleOf64(std::byte* p, int i, int code) {
    p[i / 64 * 32 + i % 32] |= static_cast<std::byte>(code << i % 64 / 32 * 4);
}
void AddBit(std::byte* p, int i, int code) {
    p[i % 32] |= static_cast<std::byte>(code << i / 32);
}

// Scales and minima of sub-blocks, as integer codes under a common d and dmin.
struct SubScales {
    float d = 0, dmin = 0;
    int scale[16] = {}, min[16] = {};
    // The code of x in sub-block s.
    int Code(float x, int s, int most) const {
        const float inverse = Inverse(d * static_cast<float>(scale[s]));
        return RoundClamped((x + dmin * static_cast<float>(min[s])) * inverse, 0, most);
    }
};

SubScales FitMinMax(const float* src, int subs, int most_code, int most_scale, std::byte* d_at,
                    std::byte* dmin_at) {
    SubScales fit;
    float scales[16], mins[16], top_scale = 0, top_min = 0;
    const int each = 256 / subs;
    for (int s = 0; s < subs; ++s) {
        const auto [low, high] = std::minmax_element(src + s * each, src + (s + 1) * each);
        mins[s] = std::max(0.0f, -*low);
        scales[s] = std::max(0.0f, *high + mins[s]) / static_cast<float>(most_code);
        top_scale = std::max(top_scale, scales[s]);
        top_min = std::max(top_min, mins[s]);
    }
    fit.d = StoreF16(d_at, top_scale / static_cast<float>(most_scale));
    fit.dmin = StoreF16(dmin_at, top_min / static_cast<float>(most_scale));
    for (int s = 0; s < subs; ++s) {
        fit.scale[s] = RoundClamped(scales[s] * Inverse(fit.d), 0, most_scale);
        fit.min[s] = RoundClamped(mins[s] * Inverse(fit.dmin), 0, most_scale);
    }
    return fit;
}

void EncodeQ2_K(const float* src, std::byte* dst) {
    std::fill(dst, dst + 84, std::byte{0});
    const SubScales fit = FitMinMax(src, 16, 3, 15, dst + 80, dst + 82);
    for (int s = 0; s < 16; ++s) dst[s] = static_cast<std::byte>(fit.scale[s] | fit.min[s] << 4);
    for (int i = 0; i < 256; ++i) AddBitPair(dst + 16, i, fit.Code(src[i], i / 16, 3));
}

void EncodeQ4_K(const float* src, std::byte* dst) {
    std::fill(dst, dst + 144, std::byte{0});
    const SubScales fit = FitMinMax(src, 8, 15, 63, dst, dst + 2);
    for (int s = 0; s < 8; ++s) StoreQ4KScale(dst + 4, s, {fit.scale[s], fit.min[s]});
    for (int i = 0; i < 256; ++i) AddNibbleOf64(dst + 16, i, fit.Code(src[i], i / 32, 15));
}

void EncodeQ5_K(const float* src, std::byte* dst) {
    std::fill(dst, dst + 176, std::byte{0});
    const SubScales fit = FitMinMax(src, 8, 31, 63, dst, dst + 2);
    for (int s = 0; s < 8; ++s) StoreQ4KScale(dst + 4, s, {fit.scale[s], fit.min[s]});
    for (int i = 0; i < 256; ++i) {
        const int code = fit.Code(src[i], i / 32, 31);
        AddNibbleOf64(dst + 48, i, code & 15);
        AddBit(dst + 16, i, code >> 4);
    }
}

// Signed scales of sub-blocks as codes in [-most, most) under a common d; returns d.
float FitPeaks(const float* src, int subs, int most_code, int most_scale, std::byte* d_at,
               int (&scale)[16]) {
    float scales[16], top = 0;
    const int each = 256 / subs;
    for (int s = 0; s < subs; ++s) {
        scales[s] = SignedPeak(src + s * each, each) / static_cast<float>(-most_code);
        if (std::fabs(scales[s]) > std::fabs(top)) top = scales[s];
    }
    const float d = StoreF16(d_at, top / static_cast<float>(-most_scale));
    for (int s = 0; s < subs; ++s) {
        scale[s] = RoundClamped(scales[s] * Inverse(d), -most_scale, most_scale - 1);
    }
    return d;
}

void EncodeQ3_K(const float* src, std::byte* dst) {
    std::fill(dst, dst + 110, std::byte{0});
    int scale[16];
    const float d = FitPeaks(src, 16, 4, 32, dst + 108, scale);
    for (int s = 0; s < 16; ++s) {
        const int code = scale[s] + 32;
        dst[96 + s % 8] |= static_cast<std::byte>((code & 15) << s / 8 * 4);
        dst[104 + s % 4] |= static_cast<std::byte>((code >> 4) << s / 4 * 2);
    }
    for (int i = 0; i < 256; ++i) {
        const float inverse = Inverse(d * static_cast<float>(scale[i / 16]));
        const int code = RoundClamped(src[i] * inverse, -4, 3) + 4;
        AddBitPair(dst + 32, i, code & 3);
        AddBit(dst, i, code >> 2);
    }
}

void EncodeQ6_K(const float* src, std::byte* dst) {
    std::fill(dst, dst + 210, std::byte{0});
    int scale[16];
    const float d = FitPeaks(src, 16, 32, 128, dst + 208, scale);
    for (int s = 0; s < 16; ++s) dst[192 + s] = static_cast<std::byte>(scale[s]);
    for (int i = 0; i < 256; ++i) {
        const float inverse = Inverse(d * static_cast<float>(scale[i / 16]));
        const int q = RoundClamped(src[i] * inverse, -32, 31) + 32;
        const int half = i / 128, g = i / 32 % 4, l = i % 32;
        dst[half * 64 + g % 2 * 32 + l] |= static_cast<std::byte>((q & 15) << g / 2 * 4);
        AddBitPair(dst + 128, i, q >> 4);
    }
}

void EncodeIq4Xs(const float* src, std::byte* dst) {
    std::fill(dst, dst + 136, std::byte{0});
    int scale[16];
    const float d = FitPeaks(src, 8, -kIq4Values[0], 32, dst, scale);
    uint16_t high = 0;
    for (int s = 0; s < 8; ++s) {
        const int code = scale[s] + 32;
        dst[4 + s / 2] |= static_cast<std::byte>((code & 15) << s % 2 * 4);
        high = static_cast<uint16_t>(high | (code >> 4) << 2 * s);
        StoreNearest(kIq4Values, src + 32 * s, Inverse(d * static_cast<float>(scale[s])),
                     dst + 8 + 16 * s);
    }
    std::memcpy(dst + 2, &high, sizeof high);
}

// Ternary weights come as multiples of one magnitude, the peak; everything rounds to -1, 0 or 1.
int Trit(float x, float inverse) {
    return RoundClamped(x * inverse, -1, 1) + 1;
}

void EncodeTq1_0(const float* src, std::byte* dst) {
    const float inverse = Inverse(StoreF16(dst + 52, std::fabs(SignedPeak(src, 256))));
    struct Run {
        int at, bytes, digits;
    };
    for (const Run run : {Run{0, 32, 5}, Run{32, 16, 5}, Run{48, 4, 4}}) {
        for (int i = 0; i < run.bytes; ++i) {
            int number = 0;
            for (int n = 0; n < 5; ++n) {
                number = number * 3 + (n < run.digits ? Trit(src[n * run.bytes + i], inverse) : 0);
            }
            dst[run.at + i] = static_cast<std::byte>((number * 256 + 242) / 243);
        }
        src += run.bytes * run.digits;
    }
}

void EncodeTq2_0(const float* src, std::byte* dst) {
    std::fill(dst, dst + 66, std::byte{0});
    const float inverse = Inverse(StoreF16(dst + 64, std::fabs(SignedPeak(src, 256))));
    for (int i = 0; i < 256; ++i) AddBitPair(dst, i, Trit(src[i], inverse));
}

// ---- Rows ---------------------------------------------------------------------------------------

template <void (*kDecode)(const std::byte*, float*)>
void DecodeFloats(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
    const int64_t bytes = Info(dtype).block_bytes;
    for (size_t i = 0; i < dst.size(); ++i) {
        kDecode(src.data() + static_cast<int64_t>(i) * bytes, &dst[i]);
    }
}

void DecodeBlocksOf(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
    const DTypeInfo& info = Info(dtype);
    const auto elements = static_cast<size_t>(info.block_elements);
    BlockParts parts;
    for (size_t b = 0; b < dst.size() / elements; ++b) {
        SplitBlock(dtype, src.data() + static_cast<int64_t>(b) * info.block_bytes, parts);
        float* out = dst.data() + b * elements;
        for (size_t i = 0; i < elements; ++i) {
            out[i] = static_cast<float>(parts.q[i]) * parts.scale[i / kPartElements] +
                     parts.offset[i / kPartElements];
        }
    }
}

void DecodeFp8(std::span<const std::byte> src, std::span<float> dst) {
    const auto elements = static_cast<size_t>(Info(DType::kFP8).block_elements);
    for (size_t i = 0; i < dst.size(); i += elements) {
        float scale = 0;
        std::memcpy(&scale, src.data(), sizeof scale);
        for (size_t k = 0; k < elements; ++k) {
            // Fp8Value without branches, so that compilers vectorize it: reads the code's bits as a
            // float, whose exponent is too small by 120.
            const auto code = std::to_integer<uint32_t>(src[sizeof scale + k]);
            const float small = std::bit_cast<float>((code & 0x80) << 24 | (code & 0x7f) << 20);
            dst[i + k] = small * 0x1p120f * scale;
        }
        src = src.subspan(sizeof scale + elements);
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

using RowEncoder = void (*)(DType, std::span<const float>, std::span<std::byte>);

// nullptr: values are not encoded in this type.
RowEncoder EncoderOf(DType dtype) {
    constexpr std::pair<DType, RowEncoder> kEncoders[] = {
        {DType::kF32, EncodeRow<EncodeF32>},
        {DType::kF16, EncodeRow<EncodeHalf<F32ToF16>>},
        {DType::kBF16, EncodeRow<EncodeHalf<F32ToBF16>>},
        {DType::kQ4_0, EncodeRow<EncodeQ4_0>},
        {DType::kQ4_1, EncodeRow<EncodeQ4_1>},
        {DType::kQ5_0, EncodeRow<EncodeQ5_0>},
        {DType::kQ5_1, EncodeRow<EncodeQ5_1>},
        {DType::kQ8_0, EncodeRow<EncodeQ8_0>},
        {DType::kQ2_K, EncodeRow<EncodeQ2_K>},
        {DType::kQ3_K, EncodeRow<EncodeQ3_K>},
        {DType::kQ4_K, EncodeRow<EncodeQ4_K>},
        {DType::kQ5_K, EncodeRow<EncodeQ5_K>},
        {DType::kQ6_K, EncodeRow<EncodeQ6_K>},
        {DType::kIQ4_NL, EncodeRow<EncodeIq4Nl>},
        {DType::kIQ4_XS, EncodeRow<EncodeIq4Xs>},
        {DType::kTQ1_0, EncodeRow<EncodeTq1_0>},
        {DType::kTQ2_0, EncodeRow<EncodeTq2_0>},
        {DType::kMXFP4, EncodeRow<EncodeMxfp4>}};
    for (const auto& [type, encoder] : kEncoders) {
        if (type == dtype) return encoder;
    }
    return nullptr;
}

void CheckSizes(DType dtype, size_t bytes, size_t elements) {
    const auto count = static_cast<int64_t>(elements);
    WEFT_CHECK(count % Info(dtype).block_elements == 0);
    WEFT_CHECK(static_cast<int64_t>(bytes) >= RowBytes(dtype, count));
}

}  // namespace

void DequantizeRow(DType dtype, std::span<const std::byte> src, std::span<float> dst) {
    CheckSizes(dtype, src.size(), dst.size());
    if (dtype == DType::kFP8) return DecodeFp8(src, dst);
    if (Info(dtype).quantized) return DecodeBlocksOf(dtype, src, dst);
    if (dtype == DType::kF32) return DecodeFloats<DecodeF32>(dtype, src, dst);
    if (dtype == DType::kF16) return DecodeFloats<DecodeHalf<F16ToF32>>(dtype, src, dst);
    if (dtype == DType::kBF16) return DecodeFloats<DecodeHalf<BF16ToF32>>(dtype, src, dst);
    if (dtype == DType::kI32) return DecodeFloats<DecodeI32>(dtype, src, dst);
    WEFT_CHECK(!"F64 rows are never converted to floats");
}

bool CanQuantize(DType dtype) {
    return EncoderOf(dtype) != nullptr;
}

void QuantizeRow(DType dtype, std::span<const float> src, std::span<std::byte> dst) {
    CheckSizes(dtype, dst.size(), src.size());
    const RowEncoder encoder = EncoderOf(dtype);
    WEFT_CHECK(encoder != nullptr);  // the caller checks CanQuantize
    encoder(dtype, src, dst);
}

}  // namespace weft
