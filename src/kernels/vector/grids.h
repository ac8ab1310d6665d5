// Decoders of the codebook types, from one packed block of 16 rows (layouts:
// kernels/weight_tiles.h) to DecodedUnits: the Grids of decoded.cc. Entries are gathered from the
// codebooks. The values equal those of avx512/grids.h, as int8.
#pragma once

#include <array>

#include "kernels/decoded.h"
#include "kernels/vector/blocks.h"
#include "kernels/vector/store.h"
#include "tensor/quant_grids.h"

namespace weft::kernels::WEFT_SET {

// Copies byte `group` of each lane to the four bytes of the lane.
WEFT_INLINE Ints ByteOfLane(Ints v, int group) {
    static constexpr std::array<int32_t, 4> kFirst = {0, 0x04040404, 0x08080808, 0x0c0c0c0c};
    return Strip::Choose(v, Strip::Add8(Strip::Table(kFirst.data()), Strip::Set8(group)));
}

// The bits of `v` from bit `from` on, masked by `mask`.
WEFT_INLINE Ints Moved(Ints v, int from, int mask) {
    return Strip::And(Strip::Right32(v, from), Strip::Set32(mask));
}
WEFT_INLINE Ints Or(Ints a, Ints b) {
    return Strip::Or(a, b);
}

// Byte g (0 to 3) of the result has the 7 sign bits that start at bit 7 g of the lane, and an
// eighth bit that makes the number of set bits even.
WEFT_INLINE Ints EvenSigns(Ints word) {
    const Ints seven =
        Or(Or(Moved(word, 0, 127), Strip::Left32(Moved(word, 7, 127), 8)),
           Or(Strip::Left32(Moved(word, 14, 127), 16), Strip::Left32(Moved(word, 21, 127), 24)));
    static constexpr std::array<int8_t, 16> kOdd = {0,    -128, -128, 0,    -128, 0,    0,    -128,
                                                    -128, 0,    0,    -128, 0,    -128, -128, 0};
    const Ints folded = LowNibbles(Strip::Xor(seven, Strip::Right8(seven, 4)));
    return Or(seven, Strip::Choose(Strip::Table(kOdd.data()), folded));
}

WEFT_INLINE void Store(Ints values, int quad, DecodedUnit& unit) {
    Strip::StoreInt(unit.q[quad][0], values);
}
WEFT_INLINE void StoreScale(Floats scale, int part, DecodedUnit& unit) {
    Strip::Store(unit.scale[part], scale);
}

// Stores four weights of each row. The signs of the four weights begin at bit 4 * (quad % 2) of
// byte quad / 2 of the row's signs.
WEFT_INLINE void StoreSigned(Ints values, Ints signs, int quad, DecodedUnit& unit) {
    const Ints bits = Strip::Set32(quad % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    const Ints own = Strip::And(ByteOfLane(signs, quad / 2), bits);
    const Ints minus = Strip::Equal8(own, bits);
    Store(Strip::Sub8(Strip::Xor(values, minus), minus), quad, unit);
}

// Converts the 2-bit codes of quad 0 or 1 of an entry to values[code].
struct PairValues {
    explicit PairValues(int8_t a, int8_t b, int8_t c) {
        const int8_t values[16] = {a, b, c, 0, b, 0, 0, 0, c};
        table = Strip::Table(values);
    }
    Ints Of(Ints entry, int quad) const {
        const Ints codes = Moved(entry, 8 * quad, 255);
        // Codes 0 and 1 are in byte 0, codes 2 and 3 in byte 2; codes 1 and 3 are multiplied by 4.
        const Ints spread = Or(codes, Strip::Left32(codes, 12));
        static constexpr std::array<int8_t, 16> kOrder = {0, 0, 2,  2,  4,  4,  6,  6,
                                                          8, 8, 10, 10, 12, 12, 14, 14};
        const Ints ordered = Strip::Choose(spread, Strip::Table(kOrder.data()));
        const Ints index = Strip::And(ordered, Strip::Set32(0x0c030c03));
        return Strip::Choose(table, index);
    }
    Ints table;
};

// Converts the four 3-bit codes of an entry to values[code].
WEFT_INLINE Ints TripleValues(Ints entry, const std::array<int8_t, 16>& values) {
    const Ints codes =
        Or(Or(Moved(entry, 0, 7), Strip::Left32(Moved(entry, 3, 7), 8)),
           Or(Strip::Left32(Moved(entry, 6, 7), 16), Strip::Left32(Moved(entry, 9, 7), 24)));
    return Strip::Choose(Strip::Table(values.data()), codes);
}

// d * (0.5 + s) * factor.
WEFT_INLINE Floats HalfStepScale(Floats d, Ints s, float factor) {
    const Floats step = Strip::Add(Strip::Set(0.5f), Strip::FromInt(s));
    return Strip::Mul(Strip::Mul(d, step), Strip::Set(factor));
}
// d * (2 s + 1).
WEFT_INLINE Floats OddScale(Floats d, Ints s) {
    const Ints odd = Or(Strip::Left32(s, 1), Strip::Set32(1));
    return Strip::Mul(d, Strip::FromInt(odd));
}
// Stores the two 4-bit scales of 32 columns.
WEFT_INLINE void StoreTwoScales(Floats d, const std::byte* nibbles, DecodedUnit& unit) {
    const Ints both = WideU8(nibbles);
    StoreScale(HalfStepScale(d, Moved(both, 0, 15), 0.25f), 0, unit);
    StoreScale(HalfStepScale(d, Moved(both, 4, 15), 0.25f), 1, unit);
}
WEFT_INLINE Ints WideU16(const std::byte* p) {
    return Strip::WidenU16(p);
}

// Decodes the 32 weights of four entries. high(g): the bits of group g's index above the lower 8.
template <typename High>
WEFT_INLINE void DecodeIq2(const uint16_t* grid, Ints index, const High& high, Ints signs,
                           DecodedUnit& unit) {
    const PairValues values(8, 25, 43);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const Ints own = Or(Moved(index, 8 * g, 255), Strip::Left32(high(g), 8));
        const Ints entry = Strip::Gather(grid, own);
        StoreSigned(values.Of(entry, 0), signs, 2 * g, unit);
        StoreSigned(values.Of(entry, 1), signs, 2 * g + 1, unit);
    }
}

// Calls decode(u) for all units.
template <typename Decode>
WEFT_INLINE void ForUnits(const Decode& decode) {
    for (int u = 0; u < kUnitsPerBlock; ++u) decode(u);
}

struct GridIQ2_XXS {
    static constexpr DType kType = DType::kIQ2_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const Ints word = LoadBytes(w + 96 + 128 * u);
            DecodeIq2(
                kIq2XxsGrid.data(), LoadBytes(w + 32 + 128 * u),
                [](int) { return Strip::IntZero(); }, EvenSigns(word), units[u]);
            const Ints s = Strip::Right32(word, 28);
            StoreScale(HalfStepScale(LoadHalves(w), s, 0.25f), 0, units[u]);
        });
    }
};

struct GridIQ2_XS {
    static constexpr DType kType = DType::kIQ2_XS;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const Ints word = LoadBytes(w + 224 + 128 * u);
            DecodeIq2(
                kIq2XsGrid.data(), LoadBytes(w + 160 + 128 * u),
                [&](int g) { return Moved(word, 28 + g, 1); }, EvenSigns(word), units[u]);
            StoreTwoScales(LoadHalves(w), w + 32 + 16 * u, units[u]);
        });
    }
};

struct GridIQ2_S {
    static constexpr DType kType = DType::kIQ2_S;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const Ints above = WideU8(w + 160 + 16 * u);
            DecodeIq2(
                kIq2SGrid.data(), LoadBytes(w + 288 + 128 * u),
                [&](int g) { return Moved(above, 2 * g, 3); }, LoadBytes(w + 352 + 128 * u),
                units[u]);
            StoreTwoScales(LoadHalves(w), w + 32 + 16 * u, units[u]);
        });
    }
};

inline constexpr std::array<int8_t, 16> kIq3XxsValues = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::array<int8_t, 16> kIq3SValues = {1, 3, 5, 7, 9, 11, 13, 15};

struct GridIQ3_XXS {
    static constexpr DType kType = DType::kIQ3_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const std::byte* own = w + 32 + 192 * u;
            const Ints word = LoadBytes(own + 128), signs = EvenSigns(word);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const Ints index = Moved(LoadBytes(own + j / 4 * 64), j % 4 * 8, 255);
                const Ints entry = Strip::Gather(kIq3XxsGrid.data(), index);
                StoreSigned(TripleValues(entry, kIq3XxsValues), signs, j, units[u]);
            }
            const Ints s = Strip::Right32(word, 28);
            StoreScale(HalfStepScale(LoadHalves(w), s, 0.5f), 0, units[u]);
        });
    }
};

struct GridIQ3_S {
    static constexpr DType kType = DType::kIQ3_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const std::byte* own = w + 224 + 192 * u;
            const Ints signs = LoadBytes(own + 128), above = WideU8(w + 96 + 16 * u);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const Ints index = Moved(LoadBytes(own + j / 4 * 64), j % 4 * 8, 255);
                const Ints ninth = Strip::Left32(Moved(above, j, 1), 8);
                const Ints entry = Strip::Gather(kIq3SGrid.data(), Or(index, ninth));
                StoreSigned(TripleValues(entry, kIq3SValues), signs, j, units[u]);
            }
            const Ints s = Moved(WideU8(w + 32 + 16 * (u / 2)), u % 2 * 4, 15);
            StoreScale(OddScale(LoadHalves(w), s), 0, units[u]);
        });
    }
};

// Decodes 32 weights 8 v + 1 or 8 v - 1, with v from the codebook. Nibble g has three bits of the
// index of group g. minus(g) is 1 if the weights of group g are 8 v - 1.
template <typename Minus>
WEFT_INLINE void DecodeIq1(Ints index, Ints nibbles, const Minus& minus, DecodedUnit& unit) {
    const PairValues values(-8, 0, 8);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const Ints high = Strip::Left32(Moved(nibbles, 4 * g, 7), 8);
        const Ints entry = Strip::Gather(kIq1Grid.data(), Or(Moved(index, 8 * g, 255), high));
        const Ints two = Strip::Left32(ByteOfLane(minus(g), 0), 1);
        const Ints shift = Strip::Sub8(Strip::Set8(1), two);
        Store(Strip::Add8(values.Of(entry, 0), shift), 2 * g, unit);
        Store(Strip::Add8(values.Of(entry, 1), shift), 2 * g + 1, unit);
    }
}

// The fourth bits of the first three nibbles hold the scale.
struct GridIQ1_S {
    static constexpr DType kType = DType::kIQ1_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const Ints head = WideU16(w + 96 + 96 * u);
            DecodeIq1(
                LoadBytes(w + 32 + 96 * u), head, [&](int) { return Moved(head, 15, 1); },
                units[u]);
            const Ints s = Or(Or(Moved(head, 3, 1), Moved(head, 6, 2)), Moved(head, 9, 4));
            const Floats scale = OddScale(LoadHalves(w), s);
            StoreScale(Strip::Mul(scale, Strip::Set(0.125f)), 0, units[u]);
        });
    }
};

struct GridIQ1_M {
    static constexpr DType kType = DType::kIQ1_M;
    static constexpr int kScales = 2;
    // The f16 whose nibbles are the upper nibbles of the four scale words.
    WEFT_INLINE Floats D(const std::byte* w) {
        const Ints bits =
            Or(Or(Moved(WideU16(w), 12, 15), Moved(WideU16(w + 32), 8, 0xf0)),
               Or(Moved(WideU16(w + 64), 4, 0xf00), Moved(WideU16(w + 96), 0, 0xf000)));
        return Strip::FromF16(bits);
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int u) {
            const Ints nibbles = WideU16(w + 192 + 96 * u);
            DecodeIq1(
                LoadBytes(w + 128 + 96 * u), nibbles,
                [&](int g) { return Moved(nibbles, 4 * g + 3, 1); }, units[u]);
            const Ints scales = WideU16(w + 32 * (u / 2));
            const Floats d = D(w);
            for (int part = 0; part < 2; ++part) {
                const Floats scale = OddScale(d, Moved(scales, u % 2 * 6 + part * 3, 7));
                StoreScale(Strip::Mul(scale, Strip::Set(0.125f)), part, units[u]);
            }
        });
    }
};

// sums[t] += the products of the unit's rows and the activations x[t].
template <int T, int kScales>
WEFT_INLINE void TimesUnit(const DecodedUnit& unit, Tokens x, Floats (&sums)[T]) {
#pragma GCC unroll 2
    for (int h = 0; h < kScales; ++h) {
        constexpr int kQuads = 8 / kScales;
        Ints dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) { return Strip::LoadInt(unit.q[kQuads * h + i][0]); };
        Dot<T, kQuads, true>(weights, x, 4 * kQuads * h, dots);
        Settle<T>(dots);
        AddAllScaled<T>(Strip::Load(unit.scale[h]), x, dots, sums);
    }
}

// Q6_K, for many tokens. q has codes from 0 to 63; the zero point is 32.
struct GridQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        for (int half = 0; half < 2; ++half) Groups(w, half, units + 4 * half);
    }
    // The order of sums is the same as in BlockQ6_K: in a whole block, the first halves of four
    // units precede the second halves.
    template <int T>
    WEFT_INLINE void Times(const DecodedUnit* units, const Range& range, Tokens x,
                           Floats (&sums)[T]) {
        const int64_t step = range.end - range.begin == kUnitsPerBlock ? 4 : 1;
        for (int64_t first = range.begin; first < range.end; first += step) {
#pragma GCC unroll 1
            for (int s = 0; s < 2; ++s) {
#pragma GCC unroll 1
                for (int64_t u = first; u < first + step; ++u) {
                    TimesHalf<T>(units[u], s, x + u, sums);
                }
            }
        }
    }

  private:
    template <int kGroup = 0>
    WEFT_INLINE void Groups(const std::byte* w, int half, DecodedUnit* units) {
        for (int i = 0; i < 8; ++i) {
            Store(BlockQ6_K::Weights<kGroup>(w + 288 + 8 * half * 192, i), i, units[kGroup]);
        }
        for (int s = 0; s < 2; ++s) {
            StoreScale(BlockQ6_K::Scale(w, 8 * half + 2 * kGroup + s), s, units[kGroup]);
        }
        if constexpr (kGroup < 3) Groups<kGroup + 1>(w, half, units);
    }
    template <int T>
    WEFT_INLINE void TimesHalf(const DecodedUnit& unit, int s, Tokens x, Floats (&sums)[T]) {
        const auto weights = [&](int i) { return Strip::LoadInt(unit.q[4 * s + i][0]); };
        BlockQ6_K::TimesCodes<T>(weights, Strip::Load(unit.scale[s]), s, x, sums);
    }
};

// Q5_K, for many tokens. q has the codes; the second scale is the minimum.
struct GridQ5_K {
    static constexpr DType kType = DType::kQ5_K;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        for (int j = 0; j < 8; j += 2) {
            DecodeSub<false>(w, j, units[j]);
            DecodeSub<true>(w, j + 1, units[j + 1]);
        }
    }
    template <int T>
    WEFT_INLINE void Times(const DecodedUnit* units, const Range& range, Tokens x,
                           Floats (&sums)[T]) {
#pragma GCC unroll 1
        for (int64_t u = range.begin; u < range.end; ++u) {
            const DecodedUnit& unit = units[u];
            const auto weights = [&](int i) { return Strip::LoadInt(unit.q[i][0]); };
            const Floats scale = Strip::Load(unit.scale[0]), min = Strip::Load(unit.scale[1]);
            BlockQ5_K::TimesCodes<T>(weights, scale, min, x + u, sums);
        }
    }

  private:
    template <bool kHigh>
    WEFT_INLINE void DecodeSub(const std::byte* w, int j, DecodedUnit& unit) {
        for (int i = 0; i < 8; ++i) Store(BlockQ5_K::Weights<kHigh>(w, j, i), i, unit);
        StoreScale(BlockQ5_K::Scale(w, j), 0, unit);
        StoreScale(BlockQ5_K::Min(w, j), 1, unit);
    }
};
}  // namespace weft::kernels::WEFT_SET
