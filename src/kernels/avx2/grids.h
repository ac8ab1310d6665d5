// Decoders of the code-book types: one packed block of 16 rows (layouts: kernels/strips.h) to
// DecodedUnits, the Grids of kernels/decoded_matmul.h. Code books are gathered from, 8 rows at a
// time; the same values as avx512/grids.h, as int8.
#pragma once

#include <array>

#include "kernels/avx2/low_bits.h"
#include "kernels/decoded.h"
#include "tensor/quant_grids.h"

namespace weft::kernels::avx2 {

// Byte `group` of each lane, four times.
WEFT_INLINE __m256i ByteOfLane(__m256i v, int group) {
    const __m256i first =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return _mm256_shuffle_epi8(v,
                               _mm256_add_epi8(first, _mm256_set1_epi8(static_cast<char>(group))));
}

// The bits of `v` from `from` on that `mask` keeps.
WEFT_INLINE __m256i Moved(__m256i v, int from, int mask) {
    return _mm256_and_si256(_mm256_srl_epi32(v, _mm_cvtsi32_si128(from)), _mm256_set1_epi32(mask));
}
WEFT_INLINE __m256i Or(__m256i a, __m256i b) {
    return _mm256_or_si256(a, b);
}

// Entry `index` of each lane, with what lies beside it above its 16 bits.
WEFT_INLINE __m256i Gather(const uint16_t* grid, __m256i index) {
    const __m256i two =
        _mm256_i32gather_epi32(reinterpret_cast<const int*>(grid), _mm256_srli_epi32(index, 1), 4);
    const __m256i odd = _mm256_slli_epi32(_mm256_and_si256(index, _mm256_set1_epi32(1)), 4);
    return _mm256_srlv_epi32(two, odd);
}

// 7 bits of signs from 7 g on of each lane, with the eighth, which makes their number even, in
// byte g.
WEFT_INLINE __m256i EvenSigns(__m256i word) {
    const __m256i seven = Or(Or(Moved(word, 0, 127), _mm256_slli_epi32(Moved(word, 7, 127), 8)),
                             Or(_mm256_slli_epi32(Moved(word, 14, 127), 16),
                                _mm256_slli_epi32(Moved(word, 21, 127), 24)));
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i folded = LowNibbles(_mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4)));
    return Or(seven, _mm256_shuffle_epi8(odd, folded));
}

WEFT_INLINE void Store(__m256i values, int h, int quad, DecodedUnit& unit) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(unit.q[quad][8 * h]), values);
}
WEFT_INLINE void StoreScale(__m256 scale, int h, int part, DecodedUnit& unit) {
    _mm256_store_ps(unit.scale[part] + 8 * h, scale);
}

// Four weights of each row: negative where bits 4 * (quad % 2).. of byte quad / 2 of the row's
// signs say so.
WEFT_INLINE void StoreSigned(__m256i values, __m256i signs, int h, int quad, DecodedUnit& unit) {
    const __m256i bits =
        _mm256_set1_epi32(quad % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    const __m256i own = _mm256_and_si256(ByteOfLane(signs, quad / 2), bits);
    const __m256i minus = _mm256_cmpeq_epi8(own, bits);
    Store(_mm256_sub_epi8(_mm256_xor_si256(values, minus), minus), h, quad, unit);
}

// The 2-bit codes of quad 0 or 1 of an entry as values[code].
struct PairValues {
    explicit PairValues(int8_t a, int8_t b, int8_t c)
        : table(_mm256_broadcastsi128_si256(
              _mm_setr_epi8(a, b, c, 0, b, 0, 0, 0, c, 0, 0, 0, 0, 0, 0, 0))) {}
    __m256i Of(__m256i entry, int quad) const {
        const __m256i codes = Moved(entry, 8 * quad, 255);
        // Codes 0 and 1 are in byte 0, 2 and 3 in byte 2; every other is read in steps of 4.
        const __m256i spread = Or(codes, _mm256_slli_epi32(codes, 12));
        const __m256i order = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14));
        const __m256i index =
            _mm256_and_si256(_mm256_shuffle_epi8(spread, order), _mm256_set1_epi32(0x0c030c03));
        return _mm256_shuffle_epi8(table, index);
    }
    __m256i table;
};

// The four 3-bit codes of an entry as values[code].
WEFT_INLINE __m256i TripleValues(__m256i entry, const std::array<int8_t, 16>& values) {
    const __m256i codes = Or(
        Or(Moved(entry, 0, 7), _mm256_slli_epi32(Moved(entry, 3, 7), 8)),
        Or(_mm256_slli_epi32(Moved(entry, 6, 7), 16), _mm256_slli_epi32(Moved(entry, 9, 7), 24)));
    return _mm256_shuffle_epi8(Table(values), codes);
}

WEFT_INLINE __m256 Floats(__m256i v) {
    return _mm256_cvtepi32_ps(v);
}
// d * (0.5 + s) * factor.
WEFT_INLINE __m256 HalfStepScale(__m256 d, __m256i s, float factor) {
    const __m256 step = _mm256_add_ps(_mm256_set1_ps(0.5f), Floats(s));
    return _mm256_mul_ps(_mm256_mul_ps(d, step), _mm256_set1_ps(factor));
}
// d * (2 s + 1).
WEFT_INLINE __m256 OddScale(__m256 d, __m256i s) {
    const __m256i odd = Or(_mm256_slli_epi32(s, 1), _mm256_set1_epi32(1));
    return _mm256_mul_ps(d, Floats(odd));
}
// The two 4-bit scales of 32 columns.
WEFT_INLINE void StoreTwoScales(__m256 d, const std::byte* nibbles, int h, DecodedUnit& unit) {
    const __m256i both = WideU8(nibbles, h);
    StoreScale(HalfStepScale(d, Moved(both, 0, 15), 0.25f), h, 0, unit);
    StoreScale(HalfStepScale(d, Moved(both, 4, 15), 0.25f), h, 1, unit);
}
WEFT_INLINE __m256i WideU16(const std::byte* p, int h) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * h)));
}

// 32 weights of four entries; high(g) has the bits of group g's index from the ninth on.
template <typename High>
WEFT_INLINE void DecodeIq2(const uint16_t* grid, __m256i index, const High& high, __m256i signs,
                           int h, DecodedUnit& unit) {
    const PairValues values(8, 25, 43);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const __m256i own = Or(Moved(index, 8 * g, 255), _mm256_slli_epi32(high(g), 8));
        const __m256i entry = Gather(grid, own);
        StoreSigned(values.Of(entry, 0), signs, h, 2 * g, unit);
        StoreSigned(values.Of(entry, 1), signs, h, 2 * g + 1, unit);
    }
}

// Calls decode(h, u) for both halves of the strip and all units.
template <typename Decode>
WEFT_INLINE void ForUnits(const Decode& decode) {
    for (int h = 0; h < 2; ++h) {
        for (int u = 0; u < kUnitsPerBlock; ++u) decode(h, u);
    }
}

struct GridIQ2_XXS {
    static constexpr DType kType = DType::kIQ2_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const __m256i word = LoadBytes(w + 96 + 128 * u, h);
            DecodeIq2(
                kIq2XxsGrid.data(), LoadBytes(w + 32 + 128 * u, h),
                [](int) { return _mm256_setzero_si256(); }, EvenSigns(word), h, units[u]);
            const __m256i s = _mm256_srli_epi32(word, 28);
            StoreScale(HalfStepScale(LoadHalves(w, h), s, 0.25f), h, 0, units[u]);
        });
    }
};

struct GridIQ2_XS {
    static constexpr DType kType = DType::kIQ2_XS;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const __m256i word = LoadBytes(w + 224 + 128 * u, h);
            DecodeIq2(
                kIq2XsGrid.data(), LoadBytes(w + 160 + 128 * u, h),
                [&](int g) { return Moved(word, 28 + g, 1); }, EvenSigns(word), h, units[u]);
            StoreTwoScales(LoadHalves(w, h), w + 32 + 16 * u, h, units[u]);
        });
    }
};

struct GridIQ2_S {
    static constexpr DType kType = DType::kIQ2_S;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const __m256i above = WideU8(w + 160 + 16 * u, h);
            DecodeIq2(
                kIq2SGrid.data(), LoadBytes(w + 288 + 128 * u, h),
                [&](int g) { return Moved(above, 2 * g, 3); }, LoadBytes(w + 352 + 128 * u, h), h,
                units[u]);
            StoreTwoScales(LoadHalves(w, h), w + 32 + 16 * u, h, units[u]);
        });
    }
};

inline constexpr std::array<int8_t, 16> kIq3XxsValues = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 16> kIq3SValues = {1, 3, 5, 7, 9, 11, 13, 15};

struct GridIQ3_XXS {
    static constexpr DType kType = DType::kIQ3_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const std::byte* own = w + 32 + 192 * u;
            const __m256i word = LoadBytes(own + 128, h), signs = EvenSigns(word);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const __m256i index = Moved(LoadBytes(own + j / 4 * 64, h), j % 4 * 8, 255);
                const __m256i entry = Gather(kIq3XxsGrid.data(), index);
                StoreSigned(TripleValues(entry, kIq3XxsValues), signs, h, j, units[u]);
            }
            const __m256i s = _mm256_srli_epi32(word, 28);
            StoreScale(HalfStepScale(LoadHalves(w, h), s, 0.5f), h, 0, units[u]);
        });
    }
};

struct GridIQ3_S {
    static constexpr DType kType = DType::kIQ3_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const std::byte* own = w + 224 + 192 * u;
            const __m256i signs = LoadBytes(own + 128, h), above = WideU8(w + 96 + 16 * u, h);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const __m256i index = Moved(LoadBytes(own + j / 4 * 64, h), j % 4 * 8, 255);
                const __m256i ninth = _mm256_slli_epi32(Moved(above, j, 1), 8);
                const __m256i entry = Gather(kIq3SGrid.data(), Or(index, ninth));
                StoreSigned(TripleValues(entry, kIq3SValues), signs, h, j, units[u]);
            }
            const __m256i s = Moved(WideU8(w + 32 + 16 * (u / 2), h), u % 2 * 4, 15);
            StoreScale(OddScale(LoadHalves(w, h), s), h, 0, units[u]);
        });
    }
};

// 32 weights 8 g +- 1: nibble g has three bits of group g's index; minus(g) is 1 where its weights
// are one less, not one more.
template <typename Minus>
WEFT_INLINE void DecodeIq1(__m256i index, __m256i nibbles, const Minus& minus, int h,
                           DecodedUnit& unit) {
    const PairValues values(-8, 0, 8);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const __m256i high = _mm256_slli_epi32(Moved(nibbles, 4 * g, 7), 8);
        const __m256i entry = Gather(kIq1Grid.data(), Or(Moved(index, 8 * g, 255), high));
        const __m256i two = _mm256_slli_epi32(ByteOfLane(minus(g), 0), 1);
        const __m256i shift = _mm256_sub_epi8(_mm256_set1_epi8(1), two);
        Store(_mm256_add_epi8(values.Of(entry, 0), shift), h, 2 * g, unit);
        Store(_mm256_add_epi8(values.Of(entry, 1), shift), h, 2 * g + 1, unit);
    }
}

// The fourth bits of the first three nibbles are the scale's.
struct GridIQ1_S {
    static constexpr DType kType = DType::kIQ1_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const __m256i head = WideU16(w + 96 + 96 * u, h);
            DecodeIq1(
                LoadBytes(w + 32 + 96 * u, h), head, [&](int) { return Moved(head, 15, 1); }, h,
                units[u]);
            const __m256i s = Or(Or(Moved(head, 3, 1), Moved(head, 6, 2)), Moved(head, 9, 4));
            const __m256 scale = OddScale(LoadHalves(w, h), s);
            StoreScale(_mm256_mul_ps(scale, _mm256_set1_ps(0.125f)), h, 0, units[u]);
        });
    }
};

struct GridIQ1_M {
    static constexpr DType kType = DType::kIQ1_M;
    static constexpr int kScales = 2;
    // f16: its nibbles are the upper ones of the four words of scales.
    WEFT_INLINE __m256 D(const std::byte* w, int h) {
        const __m256i bits =
            Or(Or(Moved(WideU16(w, h), 12, 15), Moved(WideU16(w + 32, h), 8, 0xf0)),
               Or(Moved(WideU16(w + 64, h), 4, 0xf00), Moved(WideU16(w + 96, h), 0, 0xf000)));
        const __m256i pairs = _mm256_packus_epi32(bits, bits);
        return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0xd8)));
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const __m256i nibbles = WideU16(w + 192 + 96 * u, h);
            DecodeIq1(
                LoadBytes(w + 128 + 96 * u, h), nibbles,
                [&](int g) { return Moved(nibbles, 4 * g + 3, 1); }, h, units[u]);
            const __m256i scales = WideU16(w + 32 * (u / 2), h);
            const __m256 d = D(w, h);
            for (int part = 0; part < 2; ++part) {
                const __m256 scale = OddScale(d, Moved(scales, u % 2 * 6 + part * 3, 7));
                StoreScale(_mm256_mul_ps(scale, _mm256_set1_ps(0.125f)), h, part, units[u]);
            }
        });
    }
};

}  // namespace weft::kernels::avx2
