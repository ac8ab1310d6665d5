// Decoders of the codebook types, from one packed block of 16 rows (layouts:
// kernels/weight_tiles.h) to DecodedUnits: the Grids of vector/decoded.cc.
//
// A lane of 32 bits is a row; the four bytes of its index word are four groups of weights.
// Codebooks are stored as byte tables, so that a byte permutation can look up entries in 128 bytes
// of a table. A multishift instruction moves a bit field of an entry to a byte. A table of 64
// values that repeat periodically maps the field to a magnitude, whatever the bits above the field
// are. Values are stored as int8 plus 128.
#pragma once

#include <array>

#include "kernels/avx512/low_bits.h"
#include "kernels/decoded.h"
#include "tensor/quant_grids.h"

namespace weft::kernels::avx512 {

// Codebooks of eight 2-bit codes, as two tables: the codes of weights 0..3, and of weights 4..7.
template <size_t kEntries>
struct PairTables {
    explicit PairTables(const std::array<uint16_t, kEntries>& grid) {
        for (size_t i = 0; i < kEntries; ++i) {
            low[i] = static_cast<uint8_t>(grid[i]);
            high[i] = static_cast<uint8_t>(grid[i] >> 8);
        }
    }
    alignas(64) uint8_t low[kEntries];
    alignas(64) uint8_t high[kEntries];
};

// Codebooks of four 3-bit codes, as two tables: the codes' lower two bits, and their third bits.
template <size_t kEntries>
struct TripleTables {
    explicit TripleTables(const std::array<uint16_t, kEntries>& grid) {
        for (size_t i = 0; i < kEntries; ++i) {
            const unsigned e = grid[i];
            low[i] = static_cast<uint8_t>((e & 3) | (e >> 1 & 12) | (e >> 2 & 48) | (e >> 3 & 192));
            high[i] =
                static_cast<uint8_t>((e >> 2 & 1) | (e >> 4 & 2) | (e >> 6 & 4) | (e >> 8 & 8));
        }
    }
    alignas(64) uint8_t low[kEntries];
    alignas(64) uint8_t high[kEntries];
};

// Looks up 64 entries of the table. An entry's index has bits 0 to 6 in `index` and bit 7 + n in
// bits[n].
template <int kEntries>
WEFT_INLINE __m512i LookUp(const uint8_t* table, __m512i index, const __mmask64* bits) {
    if constexpr (kEntries == 128) {
        return _mm512_permutex2var_epi8(_mm512_load_si512(table), index,
                                        _mm512_load_si512(table + 64));
    } else {
        constexpr int kHalf = kEntries / 2;
        const __m512i below = LookUp<kHalf>(table, index, bits);
        const __m512i above = LookUp<kHalf>(table + kHalf, index, bits);
        return _mm512_mask_blend_epi8(bits[__builtin_ctz(kHalf) - 7], below, above);
    }
}

// Bytes 0 to 3 of each lane get the 8 bits that begin at the lane's bits a, b, c and d.
WEFT_INLINE __m512i BitsFrom(__m512i v, int a, int b, int c, int d) {
    const auto at = [](int bit) { return static_cast<uint64_t>(bit & 63); };
    const uint64_t even = at(a) | at(b) << 8 | at(c) << 16 | at(d) << 24;
    const uint64_t odd = at(a + 32) | at(b + 32) << 8 | at(c + 32) << 16 | at(d + 32) << 24;
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(static_cast<int64_t>(even | odd << 32)),
                                        v);
}

// Copies byte `group` of each lane to the four bytes of the lane.
WEFT_INLINE __m512i ByteOfLane(__m512i v, int group) {
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm512_shuffle_epi8(v,
                               _mm512_add_epi8(first, _mm512_set1_epi8(static_cast<char>(group))));
}

// Byte g (0 to 3) of the result has the 7 sign bits that start at bit 7 g of the lane, and an
// eighth bit that makes the number of set bits even.
WEFT_INLINE __m512i EvenSigns(__m512i word) {
    const __m512i seven = _mm512_and_si512(BitsFrom(word, 0, 7, 14, 21), _mm512_set1_epi8(127));
    const __m512i odd = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m512i folded = LowNibbles(_mm512_xor_si512(seven, _mm512_srli_epi16(seven, 4)));
    return _mm512_or_si512(seven, _mm512_shuffle_epi8(odd, folded));
}

// A vector with 128 + values[i % kCount] in byte i.
struct alignas(64) Magnitudes {
    template <size_t kCount>
    consteval explicit Magnitudes(const int (&values)[kCount]) {
        for (size_t i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(128 + values[i % kCount]);
    }
    operator __m512i() const { return _mm512_load_si512(bytes); }
    uint8_t bytes[64] = {};
};

inline constexpr Magnitudes kIq1Values({-8, 0, 8, 0});
inline constexpr Magnitudes kIq2Values({8, 25, 43, 0});
inline constexpr Magnitudes kIq3XxsValues({4, 12, 20, 28, 36, 44, 52, 62});
inline constexpr Magnitudes kIq3SValues({1, 3, 5, 7, 9, 11, 13, 15});

// Stores four weights of each row, plus 128. The signs of the four weights begin at bit 4 * (kQuad
// % 2) of byte kQuad / 2 of the row's signs.
template <int kQuad>
WEFT_INLINE void StoreSigned(__m512i values, __m512i signs, DecodedUnit& unit) {
    const __m512i bits =
        _mm512_set1_epi32(kQuad % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    const __mmask64 minus = _mm512_test_epi8_mask(ByteOfLane(signs, kQuad / 2), bits);
    values = _mm512_mask_sub_epi8(values, minus, _mm512_setzero_si512(), values);
    _mm512_store_si512(unit.q[kQuad], values);
}

// Stores 32 weights, given their 2-bit codes: the codes of quad j are in byte j / 2 of low or high.
template <int kGroup = 0>
WEFT_INLINE void StorePairs(__m512i low, __m512i high, __m512i magnitudes, __m512i signs,
                            DecodedUnit& unit) {
    constexpr int kAt = 8 * kGroup;
    const __m512i a = BitsFrom(low, kAt, kAt + 2, kAt + 4, kAt + 6);
    const __m512i b = BitsFrom(high, kAt, kAt + 2, kAt + 4, kAt + 6);
    StoreSigned<2 * kGroup>(_mm512_permutexvar_epi8(a, magnitudes), signs, unit);
    StoreSigned<2 * kGroup + 1>(_mm512_permutexvar_epi8(b, magnitudes), signs, unit);
    if constexpr (kGroup < 3) StorePairs<kGroup + 1>(low, high, magnitudes, signs, unit);
}

// Stores 16 weights (quads kQuad to kQuad + 3), given their 3-bit codes.
template <int kQuad, int kGroup = 0>
WEFT_INLINE void StoreTriples(__m512i low, __m512i high, __m512i magnitudes, __m512i signs,
                              DecodedUnit& unit) {
    constexpr int kAt = 8 * kGroup;
    const __m512i pairs = BitsFrom(low, kAt, kAt + 2, kAt + 4, kAt + 6);
    const __m512i thirds = BitsFrom(high, kAt - 2, kAt - 1, kAt, kAt + 1);
    const __m512i codes = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), pairs, thirds, 0xca);
    StoreSigned<kQuad + kGroup>(_mm512_permutexvar_epi8(codes, magnitudes), signs, unit);
    if constexpr (kGroup < 3) {
        StoreTriples<kQuad, kGroup + 1>(low, high, magnitudes, signs, unit);
    }
}

WEFT_INLINE __m512 ToFloats(__m512i v) {
    return _mm512_cvtepi32_ps(v);
}
// d * (0.5 + s) * factor.
WEFT_INLINE __m512 HalfStepScale(__m512 d, __m512i s, float factor) {
    const __m512 step = _mm512_add_ps(_mm512_set1_ps(0.5f), ToFloats(s));
    return _mm512_mul_ps(_mm512_mul_ps(d, step), _mm512_set1_ps(factor));
}
// Stores the two 4-bit scales of 32 columns.
WEFT_INLINE void StoreTwoScales(__m512 d, const std::byte* nibbles, DecodedUnit& unit) {
    const __m512i both = WideU8(nibbles);
    const __m512i low = _mm512_and_si512(both, _mm512_set1_epi32(15));
    _mm512_store_ps(unit.scale[0], HalfStepScale(d, low, 0.25f));
    _mm512_store_ps(unit.scale[1], HalfStepScale(d, _mm512_srli_epi32(both, 4), 0.25f));
}

struct GridIQ2_XXS {
    static constexpr DType kType = DType::kIQ2_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        const __m512i magnitudes = kIq2Values;
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const __m512i index = LoadBytes(w + 32 + 128 * u);
            const __m512i word = LoadBytes(w + 96 + 128 * u);
            const __mmask64 bits[1] = {_mm512_movepi8_mask(index)};
            StorePairs(LookUp<256>(tables.low, index, bits), LookUp<256>(tables.high, index, bits),
                       magnitudes, EvenSigns(word), units[u]);
            const __m512 scale = HalfStepScale(d, _mm512_srli_epi32(word, 28), 0.25f);
            _mm512_store_ps(units[u].scale[0], scale);
        }
    }
    PairTables<256> tables{kIq2XxsGrid};
};

// The ninth bit of the index of group g is bit 28 + g of the word of signs.
struct GridIQ2_XS {
    static constexpr DType kType = DType::kIQ2_XS;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        const __m512i magnitudes = kIq2Values;
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const __m512i index = LoadBytes(w + 160 + 128 * u);
            const __m512i word = LoadBytes(w + 224 + 128 * u);
            const __mmask64 bits[2] = {
                _mm512_movepi8_mask(index),
                _mm512_test_epi8_mask(BitsFrom(word, 28, 29, 30, 31), _mm512_set1_epi8(1))};
            StorePairs(LookUp<512>(tables.low, index, bits), LookUp<512>(tables.high, index, bits),
                       magnitudes, EvenSigns(word), units[u]);
            StoreTwoScales(d, w + 32 + 16 * u, units[u]);
        }
    }
    PairTables<512> tables{kIq2XsGrid};
};

struct GridIQ2_S {
    static constexpr DType kType = DType::kIQ2_S;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        const __m512i magnitudes = kIq2Values;
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const __m512i index = LoadBytes(w + 288 + 128 * u);
            const __m512i signs = LoadBytes(w + 352 + 128 * u);
            const __m512i above = BitsFrom(WideU8(w + 160 + 16 * u), 0, 2, 4, 6);
            const __mmask64 bits[3] = {_mm512_movepi8_mask(index),
                                       _mm512_test_epi8_mask(above, _mm512_set1_epi8(1)),
                                       _mm512_test_epi8_mask(above, _mm512_set1_epi8(2))};
            StorePairs(LookUp<1024>(tables.low, index, bits),
                       LookUp<1024>(tables.high, index, bits), magnitudes, signs, units[u]);
            StoreTwoScales(d, w + 32 + 16 * u, units[u]);
        }
    }
    PairTables<1024> tables{kIq2SGrid};
};

struct GridIQ3_XXS {
    static constexpr DType kType = DType::kIQ3_XXS;
    static constexpr int kScales = 1;
    template <int kQuad>
    void Half(const std::byte* w, __m512i magnitudes, __m512i signs, DecodedUnit& unit) const {
        const __m512i index = LoadBytes(w + 16 * kQuad);
        const __mmask64 bits[1] = {_mm512_movepi8_mask(index)};
        StoreTriples<kQuad>(LookUp<256>(tables.low, index, bits),
                            LookUp<256>(tables.high, index, bits), magnitudes, signs, unit);
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        const __m512i magnitudes = kIq3XxsValues;
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const std::byte* own = w + 32 + 192 * u;
            const __m512i word = LoadBytes(own + 128), signs = EvenSigns(word);
            Half<0>(own, magnitudes, signs, units[u]);
            Half<4>(own, magnitudes, signs, units[u]);
            const __m512 scale = HalfStepScale(d, _mm512_srli_epi32(word, 28), 0.5f);
            _mm512_store_ps(units[u].scale[0], scale);
        }
    }
    TripleTables<256> tables{kIq3XxsGrid};
};

struct GridIQ3_S {
    static constexpr DType kType = DType::kIQ3_S;
    static constexpr int kScales = 1;
    template <int kQuad>
    void Half(const std::byte* w, __m512i above, __m512i magnitudes, __m512i signs,
              DecodedUnit& unit) const {
        const __m512i index = LoadBytes(w + 16 * kQuad);
        const __m512i ninth = BitsFrom(above, kQuad, kQuad + 1, kQuad + 2, kQuad + 3);
        const __mmask64 bits[2] = {_mm512_movepi8_mask(index),
                                   _mm512_test_epi8_mask(ninth, _mm512_set1_epi8(1))};
        StoreTriples<kQuad>(LookUp<512>(tables.low, index, bits),
                            LookUp<512>(tables.high, index, bits), magnitudes, signs, unit);
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        const __m512i magnitudes = kIq3SValues;
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const std::byte* own = w + 224 + 192 * u;
            const __m512i signs = LoadBytes(own + 128), above = WideU8(w + 96 + 16 * u);
            Half<0>(own, above, magnitudes, signs, units[u]);
            Half<4>(own, above, magnitudes, signs, units[u]);
            const __m512i both =
                _mm512_srl_epi32(WideU8(w + 32 + 16 * (u / 2)), _mm_cvtsi32_si128(u % 2 * 4));
            const __m512i s = _mm512_and_si512(both, _mm512_set1_epi32(15));
            const __m512i odd = _mm512_add_epi32(_mm512_slli_epi32(s, 1), _mm512_set1_epi32(1));
            _mm512_store_ps(units[u].scale[0], _mm512_mul_ps(d, ToFloats(odd)));
        }
    }
    TripleTables<512> tables{kIq3SGrid};
};

// Stores 32 weights 8 g + 1 or 8 g - 1, with g from a codebook of 2048 entries. A group of 8
// weights has a byte in `nibbles`, whose bits 0 to 2 belong to the group's index, and a byte in
// `flags`, whose bit 3 is set if the weights are 8 g - 1.
template <int kGroup = 0>
WEFT_INLINE void StoreShifted(__m512i low, __m512i high, __m512i magnitudes, __m512i shifts,
                              DecodedUnit& unit) {
    constexpr int kAt = 8 * kGroup;
    const __m512i a = BitsFrom(low, kAt, kAt + 2, kAt + 4, kAt + 6);
    const __m512i b = BitsFrom(high, kAt, kAt + 2, kAt + 4, kAt + 6);
    const __m512i shift = ByteOfLane(shifts, kGroup);
    _mm512_store_si512(unit.q[2 * kGroup],
                       _mm512_add_epi8(_mm512_permutexvar_epi8(a, magnitudes), shift));
    _mm512_store_si512(unit.q[2 * kGroup + 1],
                       _mm512_add_epi8(_mm512_permutexvar_epi8(b, magnitudes), shift));
    if constexpr (kGroup < 3) StoreShifted<kGroup + 1>(low, high, magnitudes, shifts, unit);
}
WEFT_INLINE void DecodeIq1(const PairTables<2048>& tables, __m512i index, __m512i nibbles,
                           __m512i flags, DecodedUnit& unit) {
    const __mmask64 bits[4] = {_mm512_movepi8_mask(index),
                               _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(1)),
                               _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(2)),
                               _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(4))};
    const __m512i two = _mm512_and_si512(_mm512_srli_epi16(flags, 2), _mm512_set1_epi8(2));
    StoreShifted(LookUp<2048>(tables.low, index, bits), LookUp<2048>(tables.high, index, bits),
                 kIq1Values, _mm512_sub_epi8(_mm512_set1_epi8(1), two), unit);
}
WEFT_INLINE __m512i WideU16(const std::byte* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// The bits of `v` from bit `from` on, masked by `mask`.
WEFT_INLINE __m512i Moved(__m512i v, int from, int mask) {
    return _mm512_and_si512(_mm512_srl_epi32(v, _mm_cvtsi32_si128(from)), _mm512_set1_epi32(mask));
}

// The fourth bits of the first three nibbles hold the scale.
struct GridIQ1_S {
    static constexpr DType kType = DType::kIQ1_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = LoadHalves(w);
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const __m512i index = LoadBytes(w + 32 + 96 * u), head = WideU16(w + 96 + 96 * u);
            const __m512i nibbles = BitsFrom(head, 0, 4, 8, 12);
            DecodeIq1(tables, index, nibbles, ByteOfLane(nibbles, 3), units[u]);
            const __m512i even = _mm512_or_si512(
                _mm512_or_si512(Moved(head, 2, 2), Moved(head, 5, 4)), Moved(head, 8, 8));
            const __m512 odd = ToFloats(_mm512_or_si512(even, _mm512_set1_epi32(1)));
            _mm512_store_ps(units[u].scale[0],
                            _mm512_mul_ps(_mm512_mul_ps(d, odd), _mm512_set1_ps(0.125f)));
        }
    }
    PairTables<2048> tables{kIq1Grid};
};

struct GridIQ1_M {
    static constexpr DType kType = DType::kIQ1_M;
    static constexpr int kScales = 2;
    // The f16 whose nibbles are the upper nibbles of the four scale words.
    WEFT_INLINE __m512 D(const std::byte* w) {
        __m512i bits = Moved(WideU16(w), 12, 15);
        bits = _mm512_or_si512(bits, Moved(WideU16(w + 32), 8, 0xf0));
        bits = _mm512_or_si512(bits, Moved(WideU16(w + 64), 4, 0xf00));
        bits = _mm512_or_si512(bits, Moved(WideU16(w + 96), 0, 0xf000));
        return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits));
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        const __m512 d = D(w);
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            const __m512i index = LoadBytes(w + 128 + 96 * u);
            const __m512i nibbles = BitsFrom(WideU16(w + 192 + 96 * u), 0, 4, 8, 12);
            DecodeIq1(tables, index, nibbles, nibbles, units[u]);
            const __m512i scales = WideU16(w + 32 * (u / 2));
            for (int h = 0; h < 2; ++h) {
                const __m512i s = Moved(scales, u % 2 * 6 + h * 3, 7);
                const __m512i odd = _mm512_add_epi32(_mm512_slli_epi32(s, 1), _mm512_set1_epi32(1));
                _mm512_store_ps(units[u].scale[h], _mm512_mul_ps(_mm512_mul_ps(d, ToFloats(odd)),
                                                                 _mm512_set1_ps(0.125f)));
            }
        }
    }
    PairTables<2048> tables{kIq1Grid};
};

// sums[t] += the product of the unit and the activations x[t].
template <int T, int kScales>
WEFT_INLINE void TimesUnit(const DecodedUnit& unit, Tokens x, __m512 (&sums)[T]) {
#pragma GCC unroll 2
    for (int h = 0; h < kScales; ++h) {
        constexpr int kQuads = 8 / kScales;
        __m512i dots[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t];
            dots[t] = _mm512_set1_epi32(kScales == 1 ? own.from_128 : 4 * own.from_32[h]);
        }
#pragma GCC unroll 8
        for (int j = kQuads * h; j < kQuads * h + kQuads; ++j) {
            Dot<T>(_mm512_load_si512(unit.q[j]), x, 4 * j, dots);
        }
        AddScaled<T>(_mm512_load_ps(unit.scale[h]), x, dots, sums);
    }
}

}  // namespace weft::kernels::avx512
