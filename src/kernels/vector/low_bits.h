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
struct BlockQ2_K {
    static constexpr DType kType = DType::kQ2_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE Float Min(const std::byte* w, int h, int s) {
        const Float minus_dmin = Simd::Sub(Simd::Zero(), LoadHalves(w + 32, h));
        const Int min = Simd::Right32(WideU8(w + 64 + 16 * s, h), 4);
        return Simd::Mul(minus_dmin, Simd::FromInt(min));
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int half, const ActivationBlock* x,
                                int64_t x_stride, Float (&sums)[T]) {
        const int first = 8 * half + 2 * kGroup;
        Int all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Short dots[T];
            Zero<T>(dots);
            const auto weights = [&](int i) {
                return BitPairs<kGroup>(LoadBytes(w + 320 + (8 * half + 4 * s + i) * 64, h));
            };
            Dot<T, 4>(weights, x + kGroup, x_stride, 16 * s, dots);
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
            const ActivationBlock& own = x[kGroup + t * x_stride];
            Float sum = AddScaled(d, own, all[t], sums[t]);
            sum = Simd::Fma(min[0], Simd::Set(own.scaled_half[0]), sum);
            sums[t] = Simd::Fma(min[1], Simd::Set(own.scaled_half[1]), sum);
        }
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, int half, const ActivationBlock* x,
                                 int64_t x_stride, Float (&sums)[T]) {
        TimesGroup<T, kGroup>(w, h, half, x, x_stride, sums);
        if constexpr (kGroup < 3) TimesGroups<T, kGroup + 1>(w, h, half, x, x_stride, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           Float (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            fetch(half, 2);
            TimesGroups<T>(w, h, half, x + 4 * half, x_stride, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, const ActivationBlock* x,
                               int64_t x_stride, Float (&sums)[T]) {
        const int half = unit / 4, group = unit % 4;
        x += 4 * half;
        if (group == 0) return TimesGroup<T, 0>(w, h, half, x, x_stride, sums);
        if (group == 1) return TimesGroup<T, 1>(w, h, half, x, x_stride, sums);
        if (group == 2) return TimesGroup<T, 2>(w, h, half, x, x_stride, sums);
        TimesGroup<T, 3>(w, h, half, x, x_stride, sums);
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
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, const ActivationBlock* x,
                                int64_t x_stride, Float (&sums)[T]) {
        Int all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            Short dots[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {  // -4 * sum(q)
                const int from = x[kGroup + t * x_stride].from_32[s] >> 3;
                dots[t] = Simd::StartShort(from);
            }
            Arrange<T>(dots);
            const auto weights = [&](int i) {
                return Codes<kGroup>(w + 288 + 192 * (4 * s + i), h);
            };
            Dot<T, 4>(weights, x + kGroup, x_stride, 16 * s, dots);
            Settle<T>(dots);
            const Int scale = WideI8(w + 32 + 16 * (2 * kGroup + s), h);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const Int scaled = Simd::WholeScaled(dots[t], scale);
                all[t] = s == 0 ? scaled : Simd::Add32(all[t], scaled);
            }
        }
        AddAllScaled<T>(LoadHalves(w, h), x + kGroup, x_stride, all, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, const ActivationBlock* x,
                                 int64_t x_stride, Float (&sums)[T]) {
        TimesGroup<T, kGroup>(w, h, x, x_stride, sums);
        if constexpr (kGroup < 7) TimesGroups<T, kGroup + 1>(w, h, x, x_stride, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           Float (&sums)[T]) {
        TimesGroups<T>(w, h, x, x_stride, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, const ActivationBlock* x,
                               int64_t x_stride, Float (&sums)[T]) {
        if (unit == kGroup) return TimesGroup<T, kGroup>(w, h, x, x_stride, sums);
        if constexpr (kGroup < 7) TimesUnit<T, kGroup + 1>(w, h, unit, x, x_stride, sums);
    }
};

struct BlockTernary {
    static constexpr DType kType = DType::kTQ2_0;
    static constexpr int64_t kUnits = 8;
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int half, const ActivationBlock* x,
                                int64_t x_stride, Float (&sums)[T]) {
        Short dots[T];
        Zero<T>(dots);
        const auto weights = [&](int i) {
            return BitPairs<kGroup>(LoadBytes(w + 32 + (8 * half + i) * 64, h));
        };
        Dot<T, 8>(weights, x + kGroup, x_stride, 0, dots);
        Settle<T>(dots);
        const Float d = LoadHalves(w, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[kGroup + t * x_stride];
            const Int from = Simd::Set32(own.from_8 >> 3);
            const Int all = Simd::Add32(Simd::Whole(dots[t]), from);
            sums[t] = AddScaled(d, own, all, sums[t]);
        }
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, int half, const ActivationBlock* x,
                                 int64_t x_stride, Float (&sums)[T]) {
        TimesGroup<T, kGroup>(w, h, half, x, x_stride, sums);
        if constexpr (kGroup < 3) TimesGroups<T, kGroup + 1>(w, h, half, x, x_stride, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           Float (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            fetch(half, 2);
            TimesGroups<T>(w, h, half, x + 4 * half, x_stride, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int h, int unit, const ActivationBlock* x,
                               int64_t x_stride, Float (&sums)[T]) {
        const int half = unit / 4, group = unit % 4;
        x += 4 * half;
        if (group == 0) return TimesGroup<T, 0>(w, h, half, x, x_stride, sums);
        if (group == 1) return TimesGroup<T, 1>(w, h, half, x, x_stride, sums);
        if (group == 2) return TimesGroup<T, 2>(w, h, half, x, x_stride, sums);
        TimesGroup<T, 3>(w, h, half, x, x_stride, sums);
    }
};

}  // namespace weft::kernels::WEFT_SET
