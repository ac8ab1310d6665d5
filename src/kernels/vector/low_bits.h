// Blocks of two- and three-bit weights, with the interface of blocks.h and the same numbers as
// avx512/low_bits.h. The 16-bit dot products of 16 columns are at most 8 * 7 * 127, plus 4 * 16 *
// 127 for the zero point. Adding pairs of these products also multiplies them by integer scales.
#pragma once

#include "kernels/vector/blocks.h"

namespace weft::kernels::WEFT_SET {

// Bits 2 * kGroup and 2 * kGroup + 1 of each byte.
template <int kGroup>
WEFT_INLINE Ints BitPairs(Ints bytes) {
    const Ints moved = kGroup == 0 ? bytes : Strip::Right8(bytes, 2 * kGroup);
    return Strip::And(moved, Strip::Set8(3));
}

// The bit layout of weights is described in avx512/low_bits.h.
struct BlockQ2_K : InHalves<BlockQ2_K> {
    static constexpr DType kType = DType::kQ2_K;
    WEFT_INLINE Floats Min(const std::byte* w, int s) {
        const Floats minus_dmin = Strip::Sub(Strip::Zero(), LoadHalves(w + 32));
        const Ints min = Strip::Right32(WideU8(w + 64 + 16 * s), 4);
        return Strip::Mul(minus_dmin, Strip::FromInt(min));
    }
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, Tokens x, Floats (&sums)[T]) {
        const int first = 8 * half + 2 * kGroup;
        Ints all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Shorts dots[T];
            Zero<T>(dots);
            const auto weights = [&](int i) {
                return BitPairs<kGroup>(LoadBytes(w + 320 + (8 * half + 4 * s + i) * 64));
            };
            Dot<T, 4>(weights, x + kGroup, 16 * s, dots);
            Settle<T>(dots);
            const Ints scale = Strip::And(WideU8(w + 64 + 16 * (first + s)), Strip::Set32(15));
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const Ints scaled = Strip::WholeScaled(dots[t], scale);
                all[t] = s == 0 ? scaled : Strip::Add32(all[t], scaled);
            }
        }
        const Floats d = LoadHalves(w), min[2] = {Min(w, first), Min(w, first + 1)};
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + kGroup)[t];
            Floats sum = AddScaled(d, own, all[t], sums[t]);
            sum = Strip::Fma(min[0], Strip::Set(own.scaled_half[0]), sum);
            sums[t] = Strip::Fma(min[1], Strip::Set(own.scaled_half[1]), sum);
        }
    }
};

struct BlockQ3_K {
    static constexpr DType kType = DType::kQ3_K;
    static constexpr int64_t kUnits = 8;
    template <int kGroup>
    WEFT_INLINE Ints Codes(const std::byte* step) {
        const Ints own = LoadBytes(step + (kGroup < 6 ? kGroup / 2 : kGroup - 6) * 64);
        if constexpr (kGroup < 6) {
            const Ints moved = kGroup % 2 == 0 ? own : Strip::Right8(own, 3);
            return Strip::And(moved, Strip::Set8(7));
        } else {
            const Ints third = Strip::Right8(LoadBytes(step + 128), kGroup - 2);
            return Strip::Or(BitPairs<3>(own), Strip::And(third, Strip::Set8(4)));
        }
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        Ints all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Shorts dots[T];
            StartAt<T, -3>(  // -4 sum(q)
                x + kGroup, [s](const ActivationBlock& own) { return own.from_32[s]; }, dots);
            const auto weights = [&](int i) { return Codes<kGroup>(w + 288 + 192 * (4 * s + i)); };
            Dot<T, 4>(weights, x + kGroup, 16 * s, dots);
            Settle<T>(dots);
            const Ints scale = WideI8(w + 32 + 16 * (2 * kGroup + s));
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const Ints scaled = Strip::WholeScaled(dots[t], scale);
                all[t] = s == 0 ? scaled : Strip::Add32(all[t], scaled);
            }
        }
        AddAllScaled<T>(LoadHalves(w), x + kGroup, all, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        TimesGroup<T, kGroup>(w, x, sums);
        if constexpr (kGroup < 7) TimesGroups<T, kGroup + 1>(w, x, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, Floats (&sums)[T]) {
        TimesGroups<T>(w, x, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, Floats (&sums)[T]) {
        if (unit == kGroup) return TimesGroup<T, kGroup>(w, x, sums);
        if constexpr (kGroup < 7) TimesUnit<T, kGroup + 1>(w, unit, x, sums);
    }
};

struct BlockTernary : InHalves<BlockTernary> {
    static constexpr DType kType = DType::kTQ2_0;
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, Tokens x, Floats (&sums)[T]) {
        Shorts dots[T];
        StartFrom8<T, -3>(x + kGroup, dots);
        const auto weights = [&](int i) {
            return BitPairs<kGroup>(LoadBytes(w + 32 + (8 * half + i) * 64));
        };
        Dot<T, 8>(weights, x + kGroup, 0, dots);
        Settle<T>(dots);
        const Floats d = LoadHalves(w);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + kGroup)[t];
            sums[t] = AddScaled(d, own, Strip::Whole(dots[t]), sums[t]);
        }
    }
};

}  // namespace weft::kernels::WEFT_SET
