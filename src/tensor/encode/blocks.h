// Encoders, one function per type. Each fits the scales of a pack (16 groups of weights, fit.h) and
// writes the bytes of the blocks (layouts: tensor/quant_parts.cc).
#pragma once

#include "tensor/encode/supers.h"
#include "tensor/quant.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

inline constexpr Search kSearch4 = {-1.2f, 0.15f, 15, 2};
inline constexpr Search kSearch5 = {-1.2f, 0.2f, 12, 2};
inline constexpr Search kSearch2 = {-0.9f, 0.1f, 15, 2};
inline constexpr Search kSearch3 = {-0.9f, 0.12f, 16, 2};
inline constexpr Search kSearch6 = {-0.9f, 0.15f, 13, 1};
inline constexpr Search kSearchIq4 = {-28.0f, 6.0f, 8, 2};

inline void PutF16(std::byte* p, float value) {
    const uint16_t half = F32ToF16(value);
    std::memcpy(p, &half, sizeof half);
}

// The codes of a pack, plus `add`, as bytes: code i of group g is at [g][i].
template <int N>
struct ByteCodes {
    alignas(64) int8_t rows[N][kGroups];
    uint8_t at[kGroups][N];
    ByteCodes(const Pack<N>& pack, float add) {
        for (int i = 0; i < N; ++i) {
            for (int g = 0; g < kGroups; g += kLanes) {
                StoreBytes(rows[i] + g, Load(pack.q[i] + g) + add);
            }
        }
        for (int g = 0; g < kGroups; ++g) {
            for (int i = 0; i < N; ++i) at[g][i] = static_cast<uint8_t>(rows[i][g]);
        }
    }
};

inline void PutNibbles(const uint8_t* codes, std::byte* dst) {
    for (int i = 0; i < 16; ++i) {
        dst[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
    }
}

inline void PutFifthBits(const uint8_t* codes, std::byte* dst) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
    std::memcpy(dst, &bits, sizeof bits);
}

// ---- Blocks of 32 -------------------------------------------------------------------------------

template <int N>
void RoundScales(Pack<N>& pack) {
    for (int g = 0; g < kGroups; ++g) pack.scale[g] = AsF16(pack.scale[g]);
}

// As Centered, but rounds halves up.
template <int kMost>
struct HalvesUp {
    WEFT_INLINE Lanes Nearest(Lanes t) {
        const Lanes code = Truncate(Max(Min(t, Splat(kMost)), Splat(-kMost)) + (kMost + 0.5f));
        return Min(code, Splat(2 * kMost - 1)) - static_cast<float>(kMost);
    }
};

// Q4_0 and Q5_0. Without importance weights, the scale is set so that the value of largest
// magnitude (the peak) is exact. Other programs set the scale in the same way, so perplexities
// match the perplexities of their files. (A search lowers the squared error by 5 %, but on SmolLM2
// it raised the perplexity by 1 to 2 %.)
template <int kMost>
void FitCentered(Pack<32>& pack, const Search& search) {
    if (pack.weighed) {
        FitLinear<Centered<kMost>>(pack, search);
        RoundScales(pack);
        LinearCodes<Centered<kMost>>(pack);
    } else {
        KeepPeaks<Centered<kMost>>(pack);
        LinearCodes<HalvesUp<kMost>>(pack);
        RoundScales(pack);
    }
}

inline void EncodeQ4_0(Pack<32>& pack, int groups, std::byte* dst) {
    FitCentered<8>(pack, kSearch4);
    const ByteCodes<32> codes(pack, 8);
    for (int g = 0; g < groups; ++g, dst += 18) {
        PutF16(dst, pack.scale[g]);
        PutNibbles(codes.at[g], dst + 2);
    }
}

inline void EncodeQ5_0(Pack<32>& pack, int groups, std::byte* dst) {
    FitCentered<16>(pack, kSearch5);
    const ByteCodes<32> codes(pack, 16);
    for (int g = 0; g < groups; ++g, dst += 22) {
        PutF16(dst, pack.scale[g]);
        PutFifthBits(codes.at[g], dst + 2);
        PutNibbles(codes.at[g], dst + 6);
    }
}

// Fits the scales and offsets of Q4_1 (top = 15) and Q5_1 (top = 31).
inline void FitWithOffset(Pack<32>& pack, float top, const Search& search) {
    FitAffine<32, Offset::kAny>(pack, top, search);
    RoundScales(pack);
    for (int g = 0; g < kGroups; ++g) pack.offset[g] = AsF16(pack.offset[g]);
    AffineCodes(pack, top);
}

inline void EncodeQ4_1(Pack<32>& pack, int groups, std::byte* dst) {
    FitWithOffset(pack, 15, kSearch4);
    const ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; ++g, dst += 20) {
        PutF16(dst, pack.scale[g]);
        PutF16(dst + 2, pack.offset[g]);
        PutNibbles(codes.at[g], dst + 4);
    }
}

inline void EncodeQ5_1(Pack<32>& pack, int groups, std::byte* dst) {
    FitWithOffset(pack, 31, kSearch5);
    const ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; ++g, dst += 24) {
        PutF16(dst, pack.scale[g]);
        PutF16(dst + 2, pack.offset[g]);
        PutFifthBits(codes.at[g], dst + 4);
        PutNibbles(codes.at[g], dst + 8);
    }
}

// The code of an IQ4 value.
inline uint8_t CodeOfIq4(int8_t value) {
    uint8_t code = 0;
    for (size_t k = 0; k < 15; ++k) {
        code = static_cast<uint8_t>(code + (value > quant::kIq4Values[k] ? 1 : 0));
    }
    return code;
}

inline void ValuesToCodes(uint8_t* codes, int count) {
    for (int i = 0; i < count; ++i) codes[i] = CodeOfIq4(static_cast<int8_t>(codes[i]));
}

inline void EncodeIq4Nl(Pack<32>& pack, int groups, std::byte* dst) {
    FitLinear<Iq4>(pack, kSearchIq4);
    RoundScales(pack);
    LinearCodes<Iq4>(pack);
    ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; ++g, dst += 18) {
        ValuesToCodes(codes.at[g], 32);
        PutF16(dst, pack.scale[g]);
        PutNibbles(codes.at[g], dst + 2);
    }
}

// Rounds to the nearest doubled magnitude of E2M1: 0 1 2 3 4 6 8 12.
WEFT_INLINE Lanes NearestMxfp4(Lanes size) {
    Lanes value = Splat(0);
#pragma GCC unroll 7
    for (size_t k = 1; k < 8; ++k) {
        const float low = quant::kMxfp4Values[k - 1], high = quant::kMxfp4Values[k];
        value += size > 0.5f * (low + high) ? Splat(high - low) : Splat(0);
    }
    return value;
}

// Tries two powers of two as the scale and keeps the one with the smaller error. The first maps the
// peak to a value between 4 and 8 (the maximum of E2M1 is 6); the second is twice as large. Stores
// the exponent of the power in pack.offset.
inline void FitMxfp4(Pack<32>& pack) {
    alignas(64) float start[kGroups];
    for (int g = 0; g < kGroups; ++g) {
        float peak = 0;
        for (int i = 0; i < 32; ++i) peak = std::max(peak, std::fabs(pack.x[i][g]));
        const int exponent = peak > 0 && peak < 3e38f ? std::ilogb(peak) - 2 : -127;
        start[g] = static_cast<float>(std::min(std::max(exponent, -126), 125));
    }
    alignas(64) float least[kGroups];
    for (int step = 0; step < 2; ++step) {
        alignas(64) float scale[kGroups];
        for (int g = 0; g < kGroups; ++g) {
            scale[g] = std::ldexp(0.5f, static_cast<int>(start[g]) + step);
        }
        for (int at = 0; at < kGroups; at += kLanes) {
            const Lanes inverse = Inverse(Load(scale + at));
            Lanes error = Splat(0);
            for (int i = 0; i < 32; ++i) {
                const Lanes x = Abs(Load(pack.x[i] + at));
                const Lanes off = x - NearestMxfp4(x * inverse) * Load(scale + at);
                error += Load(pack.w[i] + at) * off * off;
            }
            const Lanes exponent = Load(start + at) + static_cast<float>(step);
            const auto better = error < Load(least + at);
            const Lanes old = Load(pack.offset + at), old_scale = Load(pack.scale + at);
            Store(pack.offset + at, step == 0 ? exponent : (better ? exponent : old));
            Store(pack.scale + at,
                  step == 0 ? Load(scale + at) : (better ? Load(scale + at) : old_scale));
            if (step == 0) Store(least + at, error);
        }
    }
}

inline void EncodeMxfp4(Pack<32>& pack, int groups, std::byte* dst) {
    FitMxfp4(pack);
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes inverse = Inverse(Load(pack.scale + at));
        for (int i = 0; i < 32; ++i) {
            Store(pack.q[i] + at, NearestMxfp4(Abs(Load(pack.x[i] + at)) * inverse));
        }
    }
    ByteCodes<32> codes(pack, 0);
    constexpr uint8_t kCodeOf[13] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7};
    for (int g = 0; g < groups; ++g, dst += 17) {
        for (int i = 0; i < 32; ++i) {
            const int sign = pack.x[i][g] < 0 ? 8 : 0;
            codes.at[g][i] = static_cast<uint8_t>(kCodeOf[codes.at[g][i]] | sign);
        }
        dst[0] = static_cast<std::byte>(static_cast<int>(pack.offset[g]) + 127);
        PutNibbles(codes.at[g], dst + 1);
    }
}

// ---- Superblocks --------------------------------------------------------------------------------

inline void PutPairs(const uint8_t* codes, std::byte* dst) {  // the low 2 bits of 256 codes
    for (int i = 0; i < 64; ++i) {
        const uint8_t* at = codes + i / 32 * 128 + i % 32;
        dst[i] = static_cast<std::byte>((at[0] & 3) | (at[32] & 3) << 2 | (at[64] & 3) << 4 |
                                        (at[96] & 3) << 6);
    }
}

inline void PutBits(const uint8_t* codes, int bit, std::byte* dst) {  // one bit of 256 codes
    for (int i = 0; i < 32; ++i) {
        int bits = 0;
        for (int k = 0; k < 8; ++k) bits |= (codes[32 * k + i] >> bit & 1) << k;
        dst[i] = static_cast<std::byte>(bits);
    }
}

inline void PutNibblesOf64(const uint8_t* codes, std::byte* dst) {
    for (int i = 0; i < 128; ++i) {
        const uint8_t* at = codes + i / 32 * 64 + i % 32;
        dst[i] = static_cast<std::byte>((at[0] & 15) | (at[32] & 15) << 4);
    }
}

inline void EncodeQ2_K(Pack<16>& pack, int, std::byte* dst) {
    Grid grid;
    FitAffineGrid(pack, 3, 15, kSearch2, 3, grid);
    const ByteCodes<16> codes(pack, 0);
    for (int g = 0; g < 16; ++g) {
        dst[g] = static_cast<std::byte>(static_cast<int>(grid.scale[g]) |
                                        static_cast<int>(grid.min[g]) << 4);
    }
    PutPairs(codes.at[0], dst + 16);
    PutF16(dst + 80, grid.d[0]);
    PutF16(dst + 82, grid.dmin[0]);
}

// Header of a Q4_K or Q5_K block: both factors, then eight 6-bit scales and eight 6-bit minima.
inline void PutAffineHead(const Grid& grid, int first, std::byte* dst) {
    PutF16(dst, grid.d[first]);
    PutF16(dst + 2, grid.dmin[first]);
    std::memset(dst + 4, 0, 12);
    for (int s = 0; s < 8; ++s) {
        StoreQ4KScale(
            dst + 4, s,
            {static_cast<int>(grid.scale[first + s]), static_cast<int>(grid.min[first + s])});
    }
}

inline void EncodeQ4_K(Pack<32>& pack, int groups, std::byte* dst) {
    Grid grid;
    FitAffineGrid(pack, 15, 63, kSearch4, 1, grid);
    const ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; g += 8, dst += 144) {
        PutAffineHead(grid, g, dst);
        PutNibblesOf64(codes.at[g], dst + 16);
    }
}

inline void EncodeQ5_K(Pack<32>& pack, int groups, std::byte* dst) {
    Grid grid;
    FitAffineGrid(pack, 31, 63, kSearch5, 1, grid);
    const ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; g += 8, dst += 176) {
        PutAffineHead(grid, g, dst);
        PutBits(codes.at[g], 4, dst + 16);
        PutNibblesOf64(codes.at[g], dst + 48);
    }
}

inline void EncodeQ3_K(Pack<16>& pack, int, std::byte* dst) {
    Grid grid;
    FitLinearGrid<Centered<4>>(pack, 32, kSearch3, 3, grid);
    const ByteCodes<16> codes(pack, 4);
    PutBits(codes.at[0], 2, dst);
    PutPairs(codes.at[0], dst + 32);
    std::memset(dst + 96, 0, 12);
    for (int s = 0; s < 16; ++s) {
        const int code = static_cast<int>(grid.scale[s]) + 32;
        dst[96 + s % 8] |= static_cast<std::byte>((code & 15) << s / 8 * 4);
        dst[104 + s % 4] |= static_cast<std::byte>((code >> 4) << s / 4 * 2);
    }
    PutF16(dst + 108, grid.d[0]);
}

inline void EncodeQ6_K(Pack<16>& pack, int, std::byte* dst) {
    Grid grid;
    FitLinearGrid<Centered<32>>(pack, 128, kSearch6, 1, grid);
    const ByteCodes<16> codes(pack, 32);
    const uint8_t* all = codes.at[0];
    for (int i = 0; i < 64; ++i) {  // for each half of the block, 64 bytes of low nibbles: elements
                                    // l and l + 64
        for (int half = 0; half < 2; ++half) {
            const uint8_t* at = all + 128 * half + i;
            dst[64 * half + i] = static_cast<std::byte>((at[0] & 15) | (at[64] & 15) << 4);
        }
    }
    uint8_t high[256];
    for (int i = 0; i < 256; ++i) high[i] = static_cast<uint8_t>(all[i] >> 4);
    PutPairs(high, dst + 128);
    for (int s = 0; s < 16; ++s) {
        dst[192 + s] = static_cast<std::byte>(static_cast<int>(grid.scale[s]));
    }
    PutF16(dst + 208, grid.d[0]);
}

inline void EncodeIq4Xs(Pack<32>& pack, int groups, std::byte* dst) {
    Grid grid;
    FitLinearGrid<Iq4>(pack, 32, kSearchIq4, 1, grid);
    ByteCodes<32> codes(pack, 0);
    for (int g = 0; g < groups; g += 8, dst += 136) {
        PutF16(dst, grid.d[g]);
        uint16_t high = 0;
        std::memset(dst + 4, 0, 4);
        for (int s = 0; s < 8; ++s) {
            const int code = static_cast<int>(grid.scale[g + s]) + 32;
            dst[4 + s / 2] |= static_cast<std::byte>((code & 15) << s % 2 * 4);
            high = static_cast<uint16_t>(high | (code >> 4) << 2 * s);
            ValuesToCodes(codes.at[g + s], 32);
            PutNibbles(codes.at[g + s], dst + 8 + 16 * s);
        }
        std::memcpy(dst + 2, &high, sizeof high);
    }
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
