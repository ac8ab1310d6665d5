// Blocks of two- and three-bit weights of half a strip: the contract of blocks.h, the same numbers
// as avx512/low_bits.h. The 16-bit dots of 16 columns stay below 8 * 7 * 127 and 4 * 16 * 127 more
// for the zero point; the whole scales multiply where they are added in pairs.
#pragma once

#include "kernels/avx2/blocks.h"

namespace weft::kernels::avx2 {

// 8 bytes as 32-bit lanes.
WEFT_INLINE __m256i WideU8(const std::byte* p, int h) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h)));
}
WEFT_INLINE __m256i WideI8(const std::byte* p, int h) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h)));
}
WEFT_INLINE __m256i InBothHalves(__m256i v) {
    return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xaa);
}

// Bits 2 * kGroup of each byte.
template <int kGroup>
WEFT_INLINE __m256i BitPairs(__m256i bytes) {
    const __m256i moved = kGroup == 0 ? bytes : _mm256_srli_epi16(bytes, 2 * kGroup);
    return _mm256_and_si256(moved, _mm256_set1_epi8(3));
}

// Where the bits of a weight lie: avx512/low_bits.h.
struct BlockQ2_K {
    static constexpr DType kType = DType::kQ2_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m256 Min(const std::byte* w, int h, int s) {
        const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), LoadHalves(w + 32, h));
        const __m256i min = _mm256_srli_epi32(WideU8(w + 64 + 16 * s, h), 4);
        return _mm256_mul_ps(minus_dmin, _mm256_cvtepi32_ps(min));
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, int half, const ActivationBlock* x,
                                 int64_t x_stride, __m256 (&sums)[T]) {
        const int first = 8 * half + 2 * kGroup;
        __m256i all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            __m256i dots[T];
            Zero<T>(dots);
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m256i bytes = LoadBytes(w + 320 + (8 * half + i) * 64, h);
                Dot<T>(BitPairs<kGroup>(bytes), x + kGroup, x_stride, 4 * i, dots);
            }
            const __m256i scale = InBothHalves(
                _mm256_and_si256(WideU8(w + 64 + 16 * (first + s), h), _mm256_set1_epi32(15)));
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m256i scaled = _mm256_madd_epi16(dots[t], scale);
                all[t] = s == 0 ? scaled : _mm256_add_epi32(all[t], scaled);
            }
        }
        const __m256 d = LoadHalves(w, h), min[2] = {Min(w, h, first), Min(w, h, first + 1)};
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[kGroup + t * x_stride];
            __m256 sum = AddScaled(d, own, all[t], sums[t]);
            sum = _mm256_fmadd_ps(min[0], _mm256_set1_ps(own.scaled_half[0]), sum);
            sums[t] = _mm256_fmadd_ps(min[1], _mm256_set1_ps(own.scaled_half[1]), sum);
        }
        if constexpr (kGroup < 3) TimesGroups<T, kGroup + 1>(w, h, half, x, x_stride, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            TimesGroups<T, 0>(w, h, half, x + 4 * half, x_stride, sums);
        }
    }
};

struct BlockQ3_K {
    static constexpr DType kType = DType::kQ3_K;
    static constexpr int64_t kUnits = 8;
    template <int kGroup>
    WEFT_INLINE __m256i Codes(const std::byte* step, int h) {
        const __m256i own = LoadBytes(step + (kGroup < 6 ? kGroup / 2 : kGroup - 6) * 64, h);
        if constexpr (kGroup < 6) {
            const __m256i moved = kGroup % 2 == 0 ? own : _mm256_srli_epi16(own, 3);
            return _mm256_and_si256(moved, _mm256_set1_epi8(7));
        } else {
            const __m256i third = _mm256_srli_epi16(LoadBytes(step + 128, h), kGroup - 2);
            return _mm256_or_si256(BitPairs<3>(own), _mm256_and_si256(third, _mm256_set1_epi8(4)));
        }
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, const ActivationBlock* x,
                                 int64_t x_stride, __m256 (&sums)[T]) {
        __m256i all[T];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            __m256i dots[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {  // -4 * sum(q) in the lower half of each lane
                const int from = x[kGroup + t * x_stride].from_32[s] >> 3;
                dots[t] = _mm256_set1_epi32(from & 0xffff);
            }
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m256i codes = Codes<kGroup>(w + 288 + 192 * i, h);
                Dot<T>(codes, x + kGroup, x_stride, 4 * i, dots);
            }
            const __m256i scale = InBothHalves(WideI8(w + 32 + 16 * (2 * kGroup + s), h));
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m256i scaled = _mm256_madd_epi16(dots[t], scale);
                all[t] = s == 0 ? scaled : _mm256_add_epi32(all[t], scaled);
            }
        }
        AddAllScaled<T>(LoadHalves(w, h), x + kGroup, x_stride, all, sums);
        if constexpr (kGroup < 7) TimesGroups<T, kGroup + 1>(w, h, x, x_stride, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        TimesGroups<T, 0>(w, h, x, x_stride, sums);
    }
};

struct BlockTernary {
    static constexpr DType kType = DType::kTQ2_0;
    static constexpr int64_t kUnits = 8;
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroups(const std::byte* w, int h, int half, const ActivationBlock* x,
                                 int64_t x_stride, __m256 (&sums)[T]) {
        __m256i dots[T];
        Zero<T>(dots);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i bytes = LoadBytes(w + 32 + (8 * half + i) * 64, h);
            Dot<T>(BitPairs<kGroup>(bytes), x + kGroup, x_stride, 4 * i, dots);
        }
        const __m256 d = LoadHalves(w, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[kGroup + t * x_stride];
            const __m256i from = _mm256_set1_epi32(own.from_8 >> 3);
            const __m256i all = _mm256_add_epi32(PairSums(dots[t]), from);
            sums[t] = AddScaled(d, own, all, sums[t]);
        }
        if constexpr (kGroup < 3) TimesGroups<T, kGroup + 1>(w, h, half, x, x_stride, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            TimesGroups<T, 0>(w, h, half, x + 4 * half, x_stride, sums);
        }
    }
};

}  // namespace weft::kernels::avx2
