// One packed block of half a strip (8 rows) times a tile of tokens, for each type (layouts:
// kernels/strips.h). The same integers and the same float operations as avx512/blocks.h.
//
// A Block type has kType, kUnits (activation blocks that one weight block spans) and
//   Times<T>(w, h, x, x_stride, sums): sums[t] += rows 8h.. of the block at w times the
// activations x + t * x_stride. Products are u8 * s8 added in pairs to 16 bits, so T tokens keep
// 16-bit sums, which never saturate: 4-bit weights 8 * 2 * 15 * 127, 6-bit ones 2 * 2 * 63 * 127.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/strips.h"

namespace weft::kernels::avx2 {

using strips::ActivationBlock;

#define WEFT_INLINE [[gnu::always_inline]] static inline

// 32 bytes, the own half of 64 at p.
WEFT_INLINE __m256i LoadBytes(const std::byte* p, int h) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * h));
}

WEFT_INLINE __m256 LoadHalves(const std::byte* p, int h) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * h)));
}

WEFT_INLINE __m256i Quad(const ActivationBlock& x, int offset) {
    int32_t quad;
    std::memcpy(&quad, x.q + offset, sizeof quad);
    return _mm256_set1_epi32(quad);
}

WEFT_INLINE __m256i LowNibbles(__m256i v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
WEFT_INLINE __m256i HighNibbles(__m256i v) {
    return LowNibbles(_mm256_srli_epi16(v, 4));
}
WEFT_INLINE __m256i PairSums(__m256i v) {
    return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

template <int T>
WEFT_INLINE void Zero(__m256i (&dots)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) dots[t] = _mm256_setzero_si256();
}

// short_dots[t] (16-bit) += u8 weights times the four activations at `offset`.
template <int T>
WEFT_INLINE void Dot(__m256i weights, const ActivationBlock* x, int64_t x_stride, int offset,
                     __m256i (&short_dots)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
        const __m256i products = _mm256_maddubs_epi16(weights, Quad(x[t * x_stride], offset));
        short_dots[t] = _mm256_add_epi16(short_dots[t], products);
    }
}

// sums[t] += scale * x's scale * dots (32-bit).
WEFT_INLINE __m256 AddScaled(__m256 scale, const ActivationBlock& x, __m256i dots, __m256 sums) {
    const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), both, sums);
}

WEFT_INLINE __m256 AddMin(__m256 min, const ActivationBlock& x, __m256 sums) {
    return _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum), sums);
}

template <int T>
WEFT_INLINE void DotNibbles(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                            __m256i (&short_dots)[T]) {
    Zero<T>(short_dots);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m256i bytes = LoadBytes(w + 64 * j, h);
        Dot<T>(LowNibbles(bytes), x, x_stride, 4 * j, short_dots);
        Dot<T>(HighNibbles(bytes), x, x_stride, 16 + 4 * j, short_dots);
    }
}

struct BlockQ4_0 {
    static constexpr DType kType = DType::kQ4_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotNibbles<T>(w, h, x, x_stride, dots);
        const __m256 scale = LoadHalves(w + 256, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            const __m256i all = _mm256_add_epi32(PairSums(dots[t]), _mm256_set1_epi32(own.from_8));
            sums[t] = AddScaled(scale, own, all, sums[t]);
        }
    }
};

struct BlockQ4_1 {
    static constexpr DType kType = DType::kQ4_1;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotNibbles<T>(w, h, x, x_stride, dots);
        const __m256 scale = LoadHalves(w + 256, h), min = LoadHalves(w + 288, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            sums[t] = AddMin(min, own, AddScaled(scale, own, PairSums(dots[t]), sums[t]));
        }
    }
};

// int8 weights: the sign moves to the activations, and pairs stay below 2 * 128 * 127.
struct BlockQ8_0 {
    static constexpr DType kType = DType::kQ8_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        Zero<T>(dots);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const __m256i weights = LoadBytes(w + 64 * j, h), size = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m256i quad = _mm256_sign_epi8(Quad(x[t * x_stride], 4 * j), weights);
                dots[t] = _mm256_add_epi32(dots[t], PairSums(_mm256_maddubs_epi16(size, quad)));
            }
        }
        const __m256 scale = LoadHalves(w + 512, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) sums[t] = AddScaled(scale, x[t * x_stride], dots[t], sums[t]);
    }
};

struct BlockQ4_K {
    static constexpr DType kType = DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m256 LoadU8(const std::byte* p, int h) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    }
    // Sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int h, int j, const ActivationBlock* x,
                              int64_t x_stride, __m256 (&sums)[T]) {
        __m256i dots[T];
        Zero<T>(dots);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m256i bytes = LoadBytes(w + 320 + j / 2 * 512 + 64 * i, h);
            Dot<T>(kHigh ? HighNibbles(bytes) : LowNibbles(bytes), x + j, x_stride, 4 * i, dots);
        }
        const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), LoadHalves(w + 32, h));
        const __m256 scale = _mm256_mul_ps(LoadHalves(w, h), LoadU8(w + 64 + 16 * j, h));
        const __m256 min = _mm256_mul_ps(minus_dmin, LoadU8(w + 192 + 16 * j, h));
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[j + t * x_stride];
            sums[t] = AddMin(min, own, AddScaled(scale, own, PairSums(dots[t]), sums[t]));
        }
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
#pragma GCC unroll 1
        for (int j = 0; j < 8; j += 2) {
            TimesSub<T, false>(w, h, j, x, x_stride, sums);
            TimesSub<T, true>(w, h, j + 1, x, x_stride, sums);
        }
    }
};

// Where the bits of a weight lie: avx512/blocks.h.
struct BlockQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int64_t kUnits = 8;
    template <int kGroup>
    WEFT_INLINE __m256i Weights(__m256i nibbles, __m256i pairs) {
        const __m256i low = kGroup < 2 ? LowNibbles(nibbles) : HighNibbles(nibbles);
        const __m256i high = kGroup == 0   ? _mm256_slli_epi16(pairs, 4)
                             : kGroup == 1 ? _mm256_slli_epi16(pairs, 2)
                             : kGroup == 2 ? pairs
                                           : _mm256_srli_epi16(pairs, 2);
        return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(48)));
    }
    WEFT_INLINE __m256 Scale(const std::byte* w, int h, int i) {
        const auto* scales = reinterpret_cast<const __m128i*>(w + 32 + 16 * i + 8 * h);
        const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(scales));
        return _mm256_mul_ps(LoadHalves(w, h), _mm256_cvtepi32_ps(wide));
    }
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int h, int step, const ActivationBlock* x,
                                int64_t x_stride, __m256 (&sums)[T]) {
        const int s = step % 2;
        const std::byte* quants = w + 288 + step * 4 * 192;
        __m256i dots[2][T];
#pragma GCC unroll 2
        for (int i = 0; i < 4; i += 2) {
            Zero<T>(dots[i / 2]);
#pragma GCC unroll 2
            for (int n = i; n < i + 2; ++n) {
                const __m256i nibbles = LoadBytes(quants + n * 192 + kGroup % 2 * 64, h);
                const __m256i pairs = LoadBytes(quants + n * 192 + 128, h);
                Dot<T>(Weights<kGroup>(nibbles, pairs), x + kGroup, x_stride, 16 * s + 4 * n,
                       dots[i / 2]);
            }
        }
        const __m256 scale = Scale(w, h, step / 2 * 8 + 2 * kGroup + s);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[kGroup + t * x_stride];
            const __m256i both = _mm256_add_epi32(PairSums(dots[0][t]), PairSums(dots[1][t]));
            const __m256i all = _mm256_add_epi32(both, _mm256_set1_epi32(own.from_32[s]));
            sums[t] = AddScaled(scale, own, all, sums[t]);
        }
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
#pragma GCC unroll 1
        for (int step = 0; step < 4; ++step) {
            const ActivationBlock* x_half = x + step / 2 * 4;
            TimesGroup<T, 0>(w, h, step, x_half, x_stride, sums);
            TimesGroup<T, 1>(w, h, step, x_half, x_stride, sums);
            TimesGroup<T, 2>(w, h, step, x_half, x_stride, sums);
            TimesGroup<T, 3>(w, h, step, x_half, x_stride, sums);
        }
    }
};

}  // namespace weft::kernels::avx2
