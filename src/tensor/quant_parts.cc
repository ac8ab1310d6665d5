#include "tensor/quant_parts.h"

#include <bit>

#include "base/check.h"
#include "tensor/quant.h"
#include "tensor/quant_bytes.h"

namespace weft {
namespace quant {
namespace {

// ---- Blocks of 32 -------------------------------------------------------------------------------
// Four-bit weights: byte i of 16 holds elements i (low nibble) and i + 16.

// q[i] = of(nibble of element i, i), in loops that the compiler vectorizes.
template <typename Of>
[[gnu::always_inline]] inline void FromNibbles(const std::byte* p, int8_t* q, Of of) {
    for (int i = 0; i < 16; ++i) q[i] = static_cast<int8_t>(of(ByteAt(p, i) & 15, i));
    for (int i = 0; i < 16; ++i) q[16 + i] = static_cast<int8_t>(of(ByteAt(p, i) >> 4, 16 + i));
}

// f16 d, nibbles.
void SplitQ4_0(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block));
    FromNibbles(block + 2, parts.q, [](int code, int) { return code - 8; });
}

// f16 d, f16 minimum, nibbles.
void SplitQ4_1(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block), LoadF16(block + 2));
    FromNibbles(block + 4, parts.q, [](int code, int) { return code; });
}

// Element i is its nibble with bit i of a u32 as the fifth bit, minus `zero`.
void SplitFiveBits(const std::byte* high, const std::byte* nibbles, int zero, int8_t* q) {
    const uint32_t bits = LoadU32(high);
    FromNibbles(nibbles, q, [=](int code, int i) {
        return (code | static_cast<int>(bits >> i & 1) << 4) - zero;
    });
}

// f16 d, u32 of fifth bits, nibbles.
void SplitQ5_0(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block));
    SplitFiveBits(block + 2, block + 6, 16, parts.q);
}

// f16 d, f16 minimum, u32 of fifth bits, nibbles.
void SplitQ5_1(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block), LoadF16(block + 2));
    SplitFiveBits(block + 4, block + 8, 0, parts.q);
}

// f16 d, 32 int8.
void SplitQ8_0(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block));
    std::memcpy(parts.q, block + 2, 32);
}

// f16 d, nibbles that index a list of 16 values.
void SplitIq4Nl(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 2, LoadF16(block));
    FromNibbles(block + 2, parts.q,
                [](int code, int) { return kIq4Values[static_cast<size_t>(code)]; });
}

// E8M0 exponent, nibbles of E2M1. The values are doubled, so the scale is halved: 2^(e - 128).
void SplitMxfp4(const std::byte* block, BlockParts& parts) {
    const uint32_t e = ByteAt(block, 0);
    SetScale(parts, 0, 2, std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1) << 23));
    FromNibbles(block + 1, parts.q,
                [](int code, int) { return kMxfp4Values[static_cast<size_t>(code)]; });
}

// f32 scale, a scale byte for each 16 elements, two runs of nibbles of E2M1, whose values are
// doubled.
void SplitNvfp4(const std::byte* block, BlockParts& parts) {
    const float scale = std::bit_cast<float>(LoadU32(block));
    for (int part = 0; part < 4; ++part) {
        SetScale(parts, part, part + 1, scale * NvScale(ByteAt(block + 4, part)));
    }
    const auto value = [](int code, int) { return kMxfp4Values[static_cast<size_t>(code)]; };
    FromNibbles(block + 8, parts.q, value);
    FromNibbles(block + 24, parts.q + 32, value);
}

// f32 scale with the zero point in its low 8 bits; nibbles.
void SplitW4(const std::byte* block, BlockParts& parts) {
    const uint32_t head = LoadU32(block);
    const int zero = static_cast<int>(head & 0xff);
    SetScale(parts, 0, 2, std::bit_cast<float>(head & ~0xffu));
    FromNibbles(block + 4, parts.q, [=](int code, int) { return code - zero; });
}

// As SplitW4, with bytes. code - zero does not fit 8 bits, so the rest of the zero point becomes an
// offset. This is exact for scales of at most 15 bits, such as f16 and bf16.
void SplitW8(const std::byte* block, BlockParts& parts) {
    const uint32_t head = LoadU32(block);
    const float scale = std::bit_cast<float>(head & ~0xffu);
    const int rest = 128 - static_cast<int>(head & 0xff);
    SetScale(parts, 0, 2, scale, rest == 0 ? 0.0f : static_cast<float>(rest) * scale);
    for (int i = 0; i < 32; ++i) parts.q[i] = static_cast<int8_t>(ByteAt(block + 4, i) - 128);
}

// ---- Blocks of 256 ------------------------------------------------------------------------------
// Eight runs of 32 elements. The compiler vectorizes loops over a run.

// Two-bit fields: element l of run r lies in bits 2 (r % 4) of byte 32 (r / 4) + l.
int BitPair(const std::byte* p, int run, int l) {
    return ByteAt(p, run / 4 * 32 + l) >> run % 4 * 2 & 3;
}
// Four-bit fields: in nibble r % 2 of byte 32 (r / 2) + l.
int NibbleOf64(const std::byte* p, int run, int l) {
    return ByteAt(p, run / 2 * 32 + l) >> run % 2 * 4 & 15;
}
// One-bit fields: in bit r of byte l.
int Bit(const std::byte* p, int run, int l) {
    return ByteAt(p, l) >> run & 1;
}

// q[32 r + l] = of(r, l).
template <typename Of>
[[gnu::always_inline]] inline void FromRuns(int8_t* q, Of of) {
    for (int run = 0; run < 8; ++run) {
        for (int l = 0; l < 32; ++l) q[32 * run + l] = static_cast<int8_t>(of(run, l));
    }
}

// 16 bytes with a 4-bit scale and a 4-bit minimum for each 16 weights, 64 bytes of bit pairs, f16 d
// and dmin.
void SplitQ2_K(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block + 80), dmin = LoadF16(block + 82);
    for (int s = 0; s < 16; ++s) {
        const int both = ByteAt(block, s);
        SetScale(parts, s, s + 1, d * static_cast<float>(both & 15),
                 -(dmin * static_cast<float>(both >> 4)));
    }
    FromRuns(parts.q, [=](int run, int l) { return BitPair(block + 16, run, l); });
}

// 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 16 6-bit scales, f16 d.
void SplitQ3_K(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block + 108);
    for (int s = 0; s < 16; ++s) {
        const int low = ByteAt(block, 96 + s % 8) >> s / 8 * 4 & 15;
        const int high = ByteAt(block, 104 + s % 4) >> s / 4 * 2 & 3;
        SetScale(parts, s, s + 1, d * static_cast<float>((low | high << 4) - 32));
    }
    FromRuns(parts.q, [=](int run, int l) {
        return BitPair(block + 32, run, l) - 4 + 4 * Bit(block, run, l);
    });
}

// The scales and minima of Q4_K and Q5_K: f16 d, f16 dmin, 12 bytes of eight 6-bit pairs.
void SetScalesOfEight(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block), dmin = LoadF16(block + 2);
    for (int s = 0; s < 8; ++s) {
        const Q4KScale sub = LoadQ4KScale(block + 4, s);
        SetScale(parts, 2 * s, 2 * s + 2, d * static_cast<float>(sub.scale),
                 -(dmin * static_cast<float>(sub.min)));
    }
}

// Scales, 128 bytes of nibbles.
void SplitQ4_K(const std::byte* block, BlockParts& parts) {
    SetScalesOfEight(block, parts);
    FromRuns(parts.q, [=](int run, int l) { return NibbleOf64(block + 16, run, l); });
}

// Scales, 32 bytes of fifth bits, 128 bytes of nibbles.
void SplitQ5_K(const std::byte* block, BlockParts& parts) {
    SetScalesOfEight(block, parts);
    FromRuns(parts.q, [=](int run, int l) {
        return NibbleOf64(block + 48, run, l) | Bit(block + 16, run, l) << 4;
    });
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, f16 d. Of each four runs,
// run g has its low bits in byte 32(g % 2) + l: in the lower nibble for g < 2, else in the upper.
void SplitQ6_K(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block + 208);
    for (int s = 0; s < 16; ++s) {
        SetScale(parts, s, s + 1,
                 d * static_cast<float>(static_cast<int8_t>(ByteAt(block, 192 + s))));
    }
    FromRuns(parts.q, [=](int run, int l) {
        const int low = ByteAt(block, run / 4 * 64 + run % 2 * 32 + l) >> run % 4 / 2 * 4 & 15;
        return (low | BitPair(block + 128, run, l) << 4) - 32;
    });
}

// f16 d, u16 and 4 bytes of eight 6-bit scales (2 high bits, 4 low ones), nibbles as in IQ4_NL.
void SplitIq4Xs(const std::byte* block, BlockParts& parts) {
    const float d = LoadF16(block);
    const int high = LoadU16(block + 2);
    for (int s = 0; s < 8; ++s) {
        const int scale = (ByteAt(block, 4 + s / 2) >> s % 2 * 4 & 15) | (high >> 2 * s & 3) << 4;
        SetScale(parts, 2 * s, 2 * s + 2, d * static_cast<float>(scale - 32));
        FromNibbles(block + 8 + 16 * s, parts.q + 32 * s,
                    [](int code, int) { return kIq4Values[static_cast<size_t>(code)]; });
    }
}

// Ternary: a byte is a fraction of 256 whose five digits in base 3 are weights (in the last 4
// bytes: four). Digit n of byte i of a run of `bytes` is element bytes * n + i. f16 d.
void SplitTq1_0(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 16, LoadF16(block + 52));
    struct Run {
        int at, bytes, digits;
    };
    int8_t* q = parts.q;
    for (const Run run : {Run{0, 32, 5}, Run{32, 16, 5}, Run{48, 4, 4}}) {
        for (int n = 0, power = 1; n < run.digits; ++n, power *= 3) {
            for (int i = 0; i < run.bytes; ++i) {
                const int rest = ByteAt(block, run.at + i) * power & 255;
                *q++ = static_cast<int8_t>((rest * 3 >> 8) - 1);
            }
        }
    }
}

// Ternary: bit pairs, f16 d.
void SplitTq2_0(const std::byte* block, BlockParts& parts) {
    SetScale(parts, 0, 16, LoadF16(block + 64));
    FromRuns(parts.q, [=](int run, int l) { return BitPair(block, run, l) - 1; });
}

}  // namespace
}  // namespace quant

void SplitBlock(DType dtype, const std::byte* block, BlockParts& parts) {
    using namespace quant;
    switch (dtype) {
        case DType::kQ4_0: return SplitQ4_0(block, parts);
        case DType::kQ4_1: return SplitQ4_1(block, parts);
        case DType::kQ5_0: return SplitQ5_0(block, parts);
        case DType::kQ5_1: return SplitQ5_1(block, parts);
        case DType::kQ8_0: return SplitQ8_0(block, parts);
        case DType::kQ2_K: return SplitQ2_K(block, parts);
        case DType::kQ3_K: return SplitQ3_K(block, parts);
        case DType::kQ4_K: return SplitQ4_K(block, parts);
        case DType::kQ5_K: return SplitQ5_K(block, parts);
        case DType::kQ6_K: return SplitQ6_K(block, parts);
        case DType::kIQ1_S: return SplitIq1S(block, parts);
        case DType::kIQ1_M: return SplitIq1M(block, parts);
        case DType::kIQ2_XXS: return SplitIq2Xxs(block, parts);
        case DType::kIQ2_XS: return SplitIq2Xs(block, parts);
        case DType::kIQ2_S: return SplitIq2S(block, parts);
        case DType::kIQ3_XXS: return SplitIq3Xxs(block, parts);
        case DType::kIQ3_S: return SplitIq3S(block, parts);
        case DType::kIQ4_NL: return SplitIq4Nl(block, parts);
        case DType::kIQ4_XS: return SplitIq4Xs(block, parts);
        case DType::kTQ1_0: return SplitTq1_0(block, parts);
        case DType::kTQ2_0: return SplitTq2_0(block, parts);
        case DType::kMXFP4: return SplitMxfp4(block, parts);
        case DType::kW4: return SplitW4(block, parts);
        case DType::kW8: return SplitW8(block, parts);
        case DType::kNVFP4: return SplitNvfp4(block, parts);
        case DType::kFP8:
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16:
        case DType::kI32:
        case DType::kF64: break;
    }
    WEFT_CHECK(!"this type has no integer codes");
}

Q4KScale LoadQ4KScale(const std::byte* packed, int j) {
    using quant::ByteAt;
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

}  // namespace weft
