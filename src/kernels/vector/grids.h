// Decoders of the codebook types, from one packed block of 16 rows (layouts:
// kernels/weight_tiles.h) to DecodedUnits: the Grids of decoded.cc. Entries are gathered from the
// codebooks, one vector of rows at a time. The values are those of avx512/grids.h, as int8.
#pragma once

#include <array>

#include "kernels/decoded.h"
#include "kernels/vector/blocks.h"
#include "kernels/vector/store.h"
#include "tensor/quant_grids.h"

namespace weft::kernels::WEFT_SET {

// Copies byte `group` of each lane to the four bytes of the lane.
WEFT_INLINE Int ByteOfLane(Int v, int group) {
    static constexpr std::array<int32_t, 4> kFirst = {0, 0x04040404, 0x08080808, 0x0c0c0c0c};
    return Simd::Choose(v, Simd::Add8(Simd::Table(kFirst.data()), Simd::Set8(group)));
}

// The bits of `v` from bit `from` on, masked by `mask`.
WEFT_INLINE Int Moved(Int v, int from, int mask) {
    return Simd::And(Simd::Right32(v, from), Simd::Set32(mask));
}
WEFT_INLINE Int Or(Int a, Int b) {
    return Simd::Or(a, b);
}

// Byte g (0 to 3) of the result has the 7 sign bits that start at bit 7 g of the lane, and an
// eighth bit that makes the number of set bits even.
WEFT_INLINE Int EvenSigns(Int word) {
    const Int seven =
        Or(Or(Moved(word, 0, 127), Simd::Left32(Moved(word, 7, 127), 8)),
           Or(Simd::Left32(Moved(word, 14, 127), 16), Simd::Left32(Moved(word, 21, 127), 24)));
    static constexpr std::array<int8_t, 16> kOdd = {0,    -128, -128, 0,    -128, 0,    0,    -128,
                                                    -128, 0,    0,    -128, 0,    -128, -128, 0};
    const Int folded = LowNibbles(Simd::Xor(seven, Simd::Right8(seven, 4)));
    return Or(seven, Simd::Choose(Simd::Table(kOdd.data()), folded));
}

WEFT_INLINE void Store(Int values, int h, int quad, DecodedUnit& unit) {
    Simd::StoreInt(unit.q[quad][Simd::kLanes * h], values);
}
WEFT_INLINE void StoreScale(Float scale, int h, int part, DecodedUnit& unit) {
    Simd::Store(unit.scale[part] + Simd::kLanes * h, scale);
}

// Stores four weights of each row. The signs of the four weights begin at bit 4 * (quad % 2) of
// byte quad / 2 of the row's signs.
WEFT_INLINE void StoreSigned(Int values, Int signs, int h, int quad, DecodedUnit& unit) {
    const Int bits = Simd::Set32(quad % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010u));
    const Int own = Simd::And(ByteOfLane(signs, quad / 2), bits);
    const Int minus = Simd::Equal8(own, bits);
    Store(Simd::Sub8(Simd::Xor(values, minus), minus), h, quad, unit);
}

// Converts the 2-bit codes of quad 0 or 1 of an entry to values[code].
struct PairValues {
    explicit PairValues(int8_t a, int8_t b, int8_t c) {
        const int8_t values[16] = {a, b, c, 0, b, 0, 0, 0, c};
        table = Simd::Table(values);
    }
    Int Of(Int entry, int quad) const {
        const Int codes = Moved(entry, 8 * quad, 255);
        // Codes 0 and 1 are in byte 0, codes 2 and 3 in byte 2; codes 1 and 3 are multiplied by 4.
        const Int spread = Or(codes, Simd::Left32(codes, 12));
        static constexpr std::array<int8_t, 16> kOrder = {0, 0, 2,  2,  4,  4,  6,  6,
                                                          8, 8, 10, 10, 12, 12, 14, 14};
        const Int ordered = Simd::Choose(spread, Simd::Table(kOrder.data()));
        const Int index = Simd::And(ordered, Simd::Set32(0x0c030c03));
        return Simd::Choose(table, index);
    }
    Int table;
};

// Converts the four 3-bit codes of an entry to values[code].
WEFT_INLINE Int TripleValues(Int entry, const std::array<int8_t, 16>& values) {
    const Int codes =
        Or(Or(Moved(entry, 0, 7), Simd::Left32(Moved(entry, 3, 7), 8)),
           Or(Simd::Left32(Moved(entry, 6, 7), 16), Simd::Left32(Moved(entry, 9, 7), 24)));
    return Simd::Choose(Simd::Table(values.data()), codes);
}

WEFT_INLINE Float Floats(Int v) {
    return Simd::FromInt(v);
}
// d * (0.5 + s) * factor.
WEFT_INLINE Float HalfStepScale(Float d, Int s, float factor) {
    const Float step = Simd::Add(Simd::Set(0.5f), Floats(s));
    return Simd::Mul(Simd::Mul(d, step), Simd::Set(factor));
}
// d * (2 s + 1).
WEFT_INLINE Float OddScale(Float d, Int s) {
    const Int odd = Or(Simd::Left32(s, 1), Simd::Set32(1));
    return Simd::Mul(d, Floats(odd));
}
// Stores the two 4-bit scales of 32 columns.
WEFT_INLINE void StoreTwoScales(Float d, const std::byte* nibbles, int h, DecodedUnit& unit) {
    const Int both = WideU8(nibbles, h);
    StoreScale(HalfStepScale(d, Moved(both, 0, 15), 0.25f), h, 0, unit);
    StoreScale(HalfStepScale(d, Moved(both, 4, 15), 0.25f), h, 1, unit);
}
WEFT_INLINE Int WideU16(const std::byte* p, int h) {
    return Simd::WidenU16(p + h * Simd::kLanes * 2);
}

// Decodes the 32 weights of four entries. high(g): the bits of group g's index above the lower 8.
template <typename High>
WEFT_INLINE void DecodeIq2(const uint16_t* grid, Int index, const High& high, Int signs, int h,
                           DecodedUnit& unit) {
    const PairValues values(8, 25, 43);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const Int own = Or(Moved(index, 8 * g, 255), Simd::Left32(high(g), 8));
        const Int entry = Simd::Gather(grid, own);
        StoreSigned(values.Of(entry, 0), signs, h, 2 * g, unit);
        StoreSigned(values.Of(entry, 1), signs, h, 2 * g + 1, unit);
    }
}

// Calls decode(h, u) for all vectors of the strip's rows and all units.
template <typename Decode>
WEFT_INLINE void ForUnits(const Decode& decode) {
    for (int h = 0; h < kParts; ++h) {
        for (int u = 0; u < kUnitsPerBlock; ++u) decode(h, u);
    }
}

struct GridIQ2_XXS {
    static constexpr DType kType = DType::kIQ2_XXS;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const Int word = LoadBytes(w + 96 + 128 * u, h);
            DecodeIq2(
                kIq2XxsGrid.data(), LoadBytes(w + 32 + 128 * u, h),
                [](int) { return Simd::IntZero(); }, EvenSigns(word), h, units[u]);
            const Int s = Simd::Right32(word, 28);
            StoreScale(HalfStepScale(LoadHalves(w, h), s, 0.25f), h, 0, units[u]);
        });
    }
};

struct GridIQ2_XS {
    static constexpr DType kType = DType::kIQ2_XS;
    static constexpr int kScales = 2;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const Int word = LoadBytes(w + 224 + 128 * u, h);
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
            const Int above = WideU8(w + 160 + 16 * u, h);
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
            const Int word = LoadBytes(own + 128, h), signs = EvenSigns(word);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const Int index = Moved(LoadBytes(own + j / 4 * 64, h), j % 4 * 8, 255);
                const Int entry = Simd::Gather(kIq3XxsGrid.data(), index);
                StoreSigned(TripleValues(entry, kIq3XxsValues), signs, h, j, units[u]);
            }
            const Int s = Simd::Right32(word, 28);
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
            const Int signs = LoadBytes(own + 128, h), above = WideU8(w + 96 + 16 * u, h);
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
                const Int index = Moved(LoadBytes(own + j / 4 * 64, h), j % 4 * 8, 255);
                const Int ninth = Simd::Left32(Moved(above, j, 1), 8);
                const Int entry = Simd::Gather(kIq3SGrid.data(), Or(index, ninth));
                StoreSigned(TripleValues(entry, kIq3SValues), signs, h, j, units[u]);
            }
            const Int s = Moved(WideU8(w + 32 + 16 * (u / 2), h), u % 2 * 4, 15);
            StoreScale(OddScale(LoadHalves(w, h), s), h, 0, units[u]);
        });
    }
};

// Decodes 32 weights 8 v + 1 or 8 v - 1, with v from the codebook. Nibble g has three bits of the
// index of group g. minus(g) is 1 if the weights of group g are 8 v - 1.
template <typename Minus>
WEFT_INLINE void DecodeIq1(Int index, Int nibbles, const Minus& minus, int h, DecodedUnit& unit) {
    const PairValues values(-8, 0, 8);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
        const Int high = Simd::Left32(Moved(nibbles, 4 * g, 7), 8);
        const Int entry = Simd::Gather(kIq1Grid.data(), Or(Moved(index, 8 * g, 255), high));
        const Int two = Simd::Left32(ByteOfLane(minus(g), 0), 1);
        const Int shift = Simd::Sub8(Simd::Set8(1), two);
        Store(Simd::Add8(values.Of(entry, 0), shift), h, 2 * g, unit);
        Store(Simd::Add8(values.Of(entry, 1), shift), h, 2 * g + 1, unit);
    }
}

// The fourth bits of the first three nibbles hold the scale.
struct GridIQ1_S {
    static constexpr DType kType = DType::kIQ1_S;
    static constexpr int kScales = 1;
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const Int head = WideU16(w + 96 + 96 * u, h);
            DecodeIq1(
                LoadBytes(w + 32 + 96 * u, h), head, [&](int) { return Moved(head, 15, 1); }, h,
                units[u]);
            const Int s = Or(Or(Moved(head, 3, 1), Moved(head, 6, 2)), Moved(head, 9, 4));
            const Float scale = OddScale(LoadHalves(w, h), s);
            StoreScale(Simd::Mul(scale, Simd::Set(0.125f)), h, 0, units[u]);
        });
    }
};

struct GridIQ1_M {
    static constexpr DType kType = DType::kIQ1_M;
    static constexpr int kScales = 2;
    // The f16 whose nibbles are the upper nibbles of the four scale words.
    WEFT_INLINE Float D(const std::byte* w, int h) {
        const Int bits =
            Or(Or(Moved(WideU16(w, h), 12, 15), Moved(WideU16(w + 32, h), 8, 0xf0)),
               Or(Moved(WideU16(w + 64, h), 4, 0xf00), Moved(WideU16(w + 96, h), 0, 0xf000)));
        return Simd::FromF16(bits);
    }
    void Decode(const std::byte* w, DecodedUnit* units) const {
        ForUnits([&](int h, int u) {
            const Int nibbles = WideU16(w + 192 + 96 * u, h);
            DecodeIq1(
                LoadBytes(w + 128 + 96 * u, h), nibbles,
                [&](int g) { return Moved(nibbles, 4 * g + 3, 1); }, h, units[u]);
            const Int scales = WideU16(w + 32 * (u / 2), h);
            const Float d = D(w, h);
            for (int part = 0; part < 2; ++part) {
                const Float scale = OddScale(d, Moved(scales, u % 2 * 6 + part * 3, 7));
                StoreScale(Simd::Mul(scale, Simd::Set(0.125f)), h, part, units[u]);
            }
        });
    }
};

// sums[t] += the products of vector `part` of the unit's rows and the activations x[t].
template <int T, int kScales>
WEFT_INLINE void TimesUnit(const DecodedUnit& unit, int part, Tokens x, Float (&sums)[T]) {
    const int row = part * Simd::kLanes;
#pragma GCC unroll 2
    for (int h = 0; h < kScales; ++h) {
        constexpr int kQuads = 8 / kScales;
        Int dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) { return Simd::LoadInt(unit.q[kQuads * h + i][row]); };
        Dot<T, kQuads, true>(weights, x, 4 * kQuads * h, dots);
        Settle<T>(dots);
        AddAllScaled<T>(Simd::Load(unit.scale[h] + row), x, dots, sums);
    }
}

}  // namespace weft::kernels::WEFT_SET
