// Blocks of two- and three-bit weights, with the interface of blocks.h and the same numbers as
// avx512/low_bits.h. The 16-bit dot products of 16 columns are at most 8 * 7 * 127, plus 4 * 16 *
// 127 for the zero point. Adding pairs of these products also multiplies them by integer scales.
#pragma once

#include "kernels/vector/blocks.h"

namespace weft::kernels::WEFT_SET {

// Bits 2 * kGroup and 2 * kGroup + 1 of each byte.
template <int kGroup>
WEFT_INLINE Int BitPairs(Int bytes) {
    const Int moved = kGroup == 0 ? bytes : Simd::Right8(bytes, 2 * kGroup);
    return Simd::And(moved, Simd::Set8(3));
}

// The bit layout of weights is described in avx512/low_bits.h.
struct BlockQ2_K : InHalves<BlockQ2_K> {
    static constexpr DType kType = DType::kQ2_K;
    WEFT_INLINE Float Min(const std::byte* w, int h, int s) {
        const Float minus_dmin = Simd::Sub(Simd::Zero(), LoadHalves(w + 32, h));
        const Int min = Simd::Right32(WideU8(w + 64 + 16 * s, h), 4);
        return Simd::Mul(minus_dmin, Simd::FromInt(min));
    }
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int half, Tokens x, Float (&sums)[T]) {
        const int first = 8 * half + 2 * kGroup;
        Int all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Short dots[T];
            Zero<T>(dots);
            const auto weights = [&](int i) {
                return BitPairs<kGroup>(LoadBytes(w + 320 + (8 * half + 4 * s + i) * 64, h));
            };
            Dot<T, 4>(weights, x + kGroup, 16 * s, dots);
            Settle<T>(dots);
            const Int scale = Simd::And(WideU8(w + 64 + 16 * (first + s), h), Simd::Set32(15));
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const Int scaled = Simd::WholeScaled(dots[t], scale);
                all[t] = s == 0 ? scaled : Simd::Add32(all[t], scaled);
            }
        }
        const Float d = LoadHalves(w, h), min[2] = {Min(w, h, first), Min(w, h, first + 1)};
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + kGroup)[t];
            Float sum = AddScaled(d, own, all[t], sums[t]);
            sum = Simd::Fma(min[0], Simd::Set(own.scaled_half[0]), sum);
            sums[t] = Simd::Fma(min[1], Simd::Set(own.scaled_half[1]), sum);
        }
    }
};

struct BlockQ3_K {
    static constexpr DType kType = DType::kQ3_K;
    static constexpr int64_t kUnits = 8;
    template <int kGroup>
    WEFT_INLINE Int Codes(const std::byte* step, int h) {
        const Int own = LoadBytes(step + (kGroup < 6 ? kGroup / 2 : kGroup - 6) * 64, h);
        if constexpr (kGroup < 6) {
            const Int moved = kGroup % 2 == 0 ? own : Simd::Right8(own, 3);
            return Simd::And(moved, Simd::Set8(7));
        } else {
            const Int third = Simd::Right8(LoadBytes(step + 128, h), kGroup - 2);
            return Simd::Or(BitPairs<3>(own), Simd::And(third, Simd::Set8(4)));
        }
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        Int all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Short dots[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {  // -4 * sum(q)
                const int from = (x + kGroup)[t].from_32[s] >> 3;
                dots[t] = Simd::StartShort(from);
            }
            Arrange<T>(dots);
            const auto weights = [&](int i) {
                return Codes<kGroup>(w + 288 + 192 * (4 * s + i), h);
            };
            Dot<T, 4>(weights, x + kGroup, 16 * s, dots);
            Settle<T>(dots);
            const Int scale = WideI8(w + 32 + 16 * (2 * kGroup + s), h);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const Int scaled = Simd::WholeScaled(dots[t], scale);
                all[t] = s == 0 ? scaled : Simd::Add32(all[t], scaled);
            }
        }
        AddAllScaled<T>(LoadHalves(w, h), x + kGroup, all, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        TimesGroup<T, kGroup>(w, h, x, sums);
        if constexpr (kGroup < 7) TimesGroups<T, kGroup + 1>(w, h, x, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, Tokens x, Float (&sums)[T]) {
        TimesGroups<T>(w, h, x, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, Tokens x, Float (&sums)[T]) {
        if (unit == kGroup) return TimesGroup<T, kGroup>(w, h, x, sums);
        if constexpr (kGroup < 7) TimesUnit<T, kGroup + 1>(w, h, unit, x, sums);
    }
};

struct BlockTernary : InHalves<BlockTernary> {
    static constexpr DType kType = DType::kTQ2_0;
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int half, Tokens x, Float (&sums)[T]) {
        Short dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) {
            return BitPairs<kGroup>(LoadBytes(w + 32 + (8 * half + i) * 64, h));
        };
        Dot<T, 8>(weights, x + kGroup, 0, dots);
        Settle<T>(dots);
        const Float d = LoadHalves(w, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = (x + kGroup)[t];
            const Int from = Simd::Set32(own.from_8 >> 3);
            const Int all = Simd::Add32(Simd::Whole(dots[t]), from);
            sums[t] = AddScaled(d, own, all, sums[t]);
        }
    }
};

}  // namespace weft::kernels::WEFT_SET
