// Decodes quantized weights to operands of int8 tiles. A Decoder converts a packed block of 16 rows
// (layouts: kernels/weight_tiles.h) to Units of 32 columns.
//
// A Decoder has kType, kUnits (units of 32 columns in a block), and
//   kScales   scales for 32 columns: 1, or 2 (one for each half)
//   kMins     minima for 32 columns: 0, 1 or 2
//   Decode(packed, units)
// Weight 4 j + n of row r is q[j][r][n] * scale[h][r] + min[h][r]. If there are two scales or
// minima, h is the half of 16 columns in which the weight is; otherwise h is 0. The integers and
// floats are the same as in avx512/blocks.h and low_bits.h, so sums have the same bits.
#pragma once

#include "kernels/avx512/grids.h"

namespace weft::kernels::amx {

using avx512::ActivationBlock;
using avx512::BitPairs;
using avx512::FiveBits;
using avx512::HighNibbles;
using avx512::LoadBytes;
using avx512::LoadHalves;
using avx512::LowNibbles;

struct alignas(64) Unit {
    int8_t q[8][kStripRows][4];
    float scale[2][kStripRows];
    float min[2][kStripRows];
};

WEFT_INLINE void Put(Unit& unit, int j, __m512i weights) {
    _mm512_store_si512(unit.q[j], weights);
}
WEFT_INLINE void PutLess(Unit& unit, int j, __m512i weights, int less) {
    Put(unit, j, _mm512_sub_epi8(weights, _mm512_set1_epi8(static_cast<char>(less))));
}
WEFT_INLINE void PutScale(Unit& unit, __m512 scale, int h = 0) {
    _mm512_store_ps(unit.scale[h], scale);
}
WEFT_INLINE void PutMin(Unit& unit, __m512 min, int h = 0) {
    _mm512_store_ps(unit.min[h], min);
}

// Q4_0 and Q4_1; kLess is the zero point.
template <DType kOf, int kLess>
struct Nibbles {
    static constexpr DType kType = kOf;
    static constexpr int kUnits = 1, kScales = 1, kMins = kOf == DType::kQ4_1 ? 1 : 0;
    static void Decode(const std::byte* w, Unit* unit) {
        for (int j = 0; j < 4; ++j) {
            const __m512i bytes = LoadBytes(w + 64 * j);
            PutLess(*unit, j, LowNibbles(bytes), kLess);
            PutLess(*unit, j + 4, HighNibbles(bytes), kLess);
        }
        PutScale(*unit, LoadHalves(w + 256));
        if constexpr (kMins != 0) PutMin(*unit, LoadHalves(w + 288));
    }
};
using DecodeQ4_0 = Nibbles<DType::kQ4_0, 8>;
using DecodeQ4_1 = Nibbles<DType::kQ4_1, 0>;

// Q5_0 and Q5_1; kLess is the zero point.
template <DType kOf, int kLess>
struct FiveBitsEach {
    static constexpr DType kType = kOf;
    static constexpr int kUnits = 1, kScales = 1, kMins = kOf == DType::kQ5_1 ? 1 : 0;
    template <int kPart = 0>
    static void Quants(const std::byte* w, __m512i fifth, Unit* unit) {
        const __m512i bytes = LoadBytes(w + 64 * kPart);
        PutLess(*unit, kPart, FiveBits<kPart>(LowNibbles(bytes), fifth), kLess);
        PutLess(*unit, kPart + 4, FiveBits<kPart + 4>(HighNibbles(bytes), fifth), kLess);
        if constexpr (kPart < 3) Quants<kPart + 1>(w, fifth, unit);
    }
    static void Decode(const std::byte* w, Unit* unit) {
        Quants(w, LoadBytes(w + 256), unit);
        PutScale(*unit, LoadHalves(w + 320));
        if constexpr (kMins != 0) PutMin(*unit, LoadHalves(w + 352));
    }
};
using DecodeQ5_0 = FiveBitsEach<DType::kQ5_0, 16>;
using DecodeQ5_1 = FiveBitsEach<DType::kQ5_1, 0>;

struct DecodeQ8_0 {
    static constexpr DType kType = DType::kQ8_0;
    static constexpr int kUnits = 1, kScales = 1, kMins = 0;
    static void Decode(const std::byte* w, Unit* unit) {
        for (int j = 0; j < 8; ++j) Put(*unit, j, LoadBytes(w + 64 * j));
        PutScale(*unit, LoadHalves(w + 512));
    }
};

// Nibbles that index a table.
WEFT_INLINE void PutChosen(const std::byte* w, const std::array<int8_t, 16>& values, Unit& unit) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values.data())));
    for (int j = 0; j < 4; ++j) {
        const __m512i bytes = LoadBytes(w + 64 * j);
        Put(unit, j, _mm512_shuffle_epi8(table, LowNibbles(bytes)));
        Put(unit, j + 4, _mm512_shuffle_epi8(table, HighNibbles(bytes)));
    }
}

struct DecodeIQ4_NL {
    static constexpr DType kType = DType::kIQ4_NL;
    static constexpr int kUnits = 1, kScales = 1, kMins = 0;
    static void Decode(const std::byte* w, Unit* unit) {
        PutChosen(w, quant::kIq4Values, *unit);
        PutScale(*unit, LoadHalves(w + 256));
    }
};

struct DecodeMXFP4 {
    static constexpr DType kType = DType::kMXFP4;
    static constexpr int kUnits = 1, kScales = 1, kMins = 0;
    static void Decode(const std::byte* w, Unit* unit) {
        PutChosen(w, quant::kMxfp4Values, *unit);
        PutScale(*unit, avx512::BlockMXFP4::Scale(w + 256));
    }
};

struct DecodeIQ4_XS {
    static constexpr DType kType = DType::kIQ4_XS;
    static constexpr int kUnits = 8, kScales = 1, kMins = 0;
    static void Decode(const std::byte* w, Unit* units) {
        const __m512 d = LoadHalves(w);
        for (int s = 0; s < 8; ++s) {
            PutChosen(w + 160 + 256 * s, quant::kIq4Values, units[s]);
            const __m512i scale = avx512::WideI8(w + 32 + 16 * s);
            PutScale(units[s], _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale)));
        }
    }
};

// Q4_K and Q5_K.
template <bool kFive>
struct ScalesAndMinima {
    using Block = avx512::BlockOfScalesAndMinima<kFive>;
    static constexpr DType kType = Block::kType;
    static constexpr int kUnits = 8, kScales = 1, kMins = 1;
    static void Decode(const std::byte* w, Unit* units) {
        const __m512 d = LoadHalves(w);
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 32));
        for (int j = 0; j < 8; ++j) {
            const std::byte* quants = w + Block::kQuants + j / 2 * 512;
            const __m512i bit = _mm512_set1_epi8(static_cast<char>(1 << j));
            for (int i = 0; i < 8; ++i) {
                const __m512i bytes = LoadBytes(quants + 64 * i);
                __m512i weights = j % 2 == 0 ? LowNibbles(bytes) : HighNibbles(bytes);
                if constexpr (kFive) {
                    const __mmask64 fifth = _mm512_test_epi8_mask(LoadBytes(w + 320 + 64 * i), bit);
                    weights = _mm512_mask_add_epi8(weights, fifth, weights, _mm512_set1_epi8(16));
                }
                Put(units[j], i, weights);
            }
            PutScale(units[j], _mm512_mul_ps(d, Block::LoadU8(w + 64 + 16 * j)));
            PutMin(units[j], _mm512_mul_ps(minus_dmin, Block::LoadU8(w + 192 + 16 * j)));
        }
    }
};
using DecodeQ4_K = ScalesAndMinima<false>;
using DecodeQ5_K = ScalesAndMinima<true>;

// Decodes blocks whose columns are two halves of four groups each. Of::Group<g>(w, half, unit)
// decodes one group.
template <typename Of>
struct InHalves {
    static void Decode(const std::byte* w, Unit* units) {
        for (int half = 0; half < 2; ++half) Groups(w, half, units + 4 * half);
    }

  private:
    template <int kGroup = 0>
    static void Groups(const std::byte* w, int half, Unit* units) {
        Of::template Group<kGroup>(w, half, units[kGroup]);
        if constexpr (kGroup < 3) Groups<kGroup + 1>(w, half, units);
    }
};

struct DecodeQ6_K : InHalves<DecodeQ6_K> {
    using Block = avx512::BlockQ6_K;
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int kUnits = 8, kScales = 2, kMins = 0;
    static constexpr bool kHalvesApart = true;  // the first halves of four units are added to the
                                                // sums before the second halves
    template <int kGroup>
    static void Group(const std::byte* w, int half, Unit& unit) {
        for (int i = 0; i < 8; ++i) {
            const std::byte* quants = w + 288 + (half * 8 + i) * 192;
            const __m512i nibbles = LoadBytes(quants + kGroup % 2 * 64);
            PutLess(unit, i, Block::Weights<kGroup>(nibbles, LoadBytes(quants + 128)), 32);
        }
        for (int s = 0; s < 2; ++s) PutScale(unit, Block::Scale(w, half * 8 + 2 * kGroup + s), s);
    }
};

struct DecodeTernary : InHalves<DecodeTernary> {
    static constexpr DType kType = DType::kTQ2_0;
    static constexpr int kUnits = 8, kScales = 1, kMins = 0;
    template <int kGroup>
    static void Group(const std::byte* w, int half, Unit& unit) {
        for (int i = 0; i < 8; ++i) {
            PutLess(unit, i, BitPairs<kGroup>(LoadBytes(w + 32 + (8 * half + i) * 64)), 1);
        }
        PutScale(unit, LoadHalves(w));
    }
};

// Multiplies the codes by their small integer scales, so that one float scale per block remains.
struct DecodeQ2_K : InHalves<DecodeQ2_K> {
    using Block = avx512::BlockQ2_K;
    static constexpr DType kType = DType::kQ2_K;
    static constexpr int kUnits = 8, kScales = 1, kMins = 2;
    template <int kGroup>
    static void Group(const std::byte* w, int half, Unit& unit) {
        for (int s = 0; s < 2; ++s) {
            const int at = 8 * half + 2 * kGroup + s;
            const __m512i scale = avx512::InBothHalves(Block::Scale(w, at));
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m512i bytes = LoadBytes(w + Block::kQuants + (8 * half + i) * 64);
                Put(unit, i, _mm512_mullo_epi16(BitPairs<kGroup>(bytes), scale));
            }
            PutMin(unit, Block::Min(w, at), s);
        }
        PutScale(unit, LoadHalves(w));
    }
};

// Stores the negated weights (4 - code) * scale, which are in [-128, 124]; the float scale is
// negated, too. Two bytes are multiplied at once; the carry from the lower byte is removed by
// adding 4 * scale to both.
struct DecodeQ3_K {
    using Block = avx512::BlockQ3_K;
    static constexpr DType kType = DType::kQ3_K;
    static constexpr int kUnits = 8, kScales = 1, kMins = 0;
    template <int kGroup = 0>
    static void Group(const std::byte* w, Unit* units) {
        for (int s = 0; s < 2; ++s) {
            const __m512i scale =
                avx512::InBothHalves(avx512::WideI8(w + 32 + 16 * (2 * kGroup + s)));
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m512i codes = Block::Codes<kGroup>(w + Block::kQuants + 192 * i);
                const __m512i low =
                    _mm512_mullo_epi16(_mm512_and_si512(codes, _mm512_set1_epi16(255)), scale);
                const __m512i high = _mm512_mullo_epi16(_mm512_srli_epi16(codes, 8), scale);
                const __m512i both =
                    _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, low, _mm512_slli_epi16(high, 8));
                const __m512i four = _mm512_slli_epi16(scale, 2);
                const __m512i from =
                    _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, four, _mm512_slli_epi16(four, 8));
                Put(units[kGroup], i, _mm512_sub_epi8(from, both));
            }
        }
        PutScale(units[kGroup], _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w)));
        if constexpr (kGroup < 7) Group<kGroup + 1>(w, units);
    }
    static void Decode(const std::byte* w, Unit* units) { Group(w, units); }
};

// The codebook types.
template <typename Grid>
struct FromGrid {
    static constexpr DType kType = Grid::kType;
    static constexpr int kUnits = 8, kScales = Grid::kScales, kMins = 0;
    static void Decode(const std::byte* w, Unit* units) {
        DecodedUnit decoded[kUnitsPerBlock];
        TheGrid<Grid>().Decode(w, decoded);
        for (int u = 0; u < kUnits; ++u) {
            for (int j = 0; j < 8; ++j) {
                const __m512i weights = _mm512_load_si512(decoded[u].q[j]);
                Put(units[u], j, _mm512_xor_si512(weights, _mm512_set1_epi8(-128)));
            }
            for (int h = 0; h < kScales; ++h) {
                PutScale(units[u], _mm512_load_ps(decoded[u].scale[h]), h);
            }
        }
    }
};

}  // namespace weft::kernels::amx
