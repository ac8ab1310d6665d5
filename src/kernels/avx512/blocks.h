// One packed block of a strip times a tile of tokens, for each type (layouts: kernels/strips.h).
//
// A Block type has kType, kUnits (activation blocks that one weight block spans) and
//   Times<T>(w, x, x_stride, sums): sums[t] += block at w times the activations x + t * x_stride.
// Weights are read in the order of their addresses: measured on Zen 4, the hardware then fetches
// ahead better than any prefetch instruction does.
// sums are 16 rows wide. Everything is inlined into the tile loops of matmul.cc; T is at most 12.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/strips.h"

namespace weft::kernels::avx512 {

using strips::ActivationBlock;

#define WEFT_INLINE [[gnu::always_inline]] static inline

WEFT_INLINE __m512i LoadBytes(const std::byte* p) {
    return _mm512_loadu_si512(p);
}

WEFT_INLINE __m512 LoadHalves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Four int8 of an activation block in every lane.
WEFT_INLINE __m512i Quad(const ActivationBlock& x, int offset) {
    int32_t quad;
    std::memcpy(&quad, x.q + offset, sizeof quad);
    return _mm512_set1_epi32(quad);
}

WEFT_INLINE __m512i LowNibbles(__m512i v) {
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}
WEFT_INLINE __m512i HighNibbles(__m512i v) {
    return LowNibbles(_mm512_srli_epi16(v, 4));
}

// dots[t] += u8 weights times the four activations at `offset`.
template <int T>
WEFT_INLINE void Dot(__m512i weights, const ActivationBlock* x, int64_t x_stride, int offset,
                     __m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        dots[t] = _mm512_dpbusd_epi32(dots[t], weights, Quad(x[t * x_stride], offset));
    }
}

// sums[t] += scale * x's scale * dots[t].
template <int T>
WEFT_INLINE void AddScaled(__m512 scale, const ActivationBlock* x, int64_t x_stride,
                           const __m512i (&dots)[T], __m512 (&sums)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x[t * x_stride].scale));
        sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), both, sums[t]);
    }
}

// sums[t] += min * sum of x.
template <int T>
WEFT_INLINE void AddMin(__m512 min, const ActivationBlock* x, int64_t x_stride, __m512 (&sums)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        sums[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x[t * x_stride].scaled_sum), sums[t]);
    }
}

template <int T>
WEFT_INLINE void StartAtZero(__m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) dots[t] = _mm512_setzero_si512();
}

// The dots start where the zero point puts them: at x's `member`.
template <int T, typename Member>
WEFT_INLINE void StartAt(const ActivationBlock* x, int64_t x_stride, const Member& member,
                         __m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) dots[t] = _mm512_set1_epi32(member(x[t * x_stride]));
}

// 32 weights of 4 bits: byte 4j + i of a lane's 16 holds k = 4j + i and k = 16 + 4j + i.
template <int T>
WEFT_INLINE void DotNibbles(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                            __m512i (&dots)[T]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i bytes = LoadBytes(w + 64 * j);
        Dot<T>(LowNibbles(bytes), x, x_stride, 4 * j, dots);
        Dot<T>(HighNibbles(bytes), x, x_stride, 16 + 4 * j, dots);
    }
}

struct BlockQ4_0 {
    static constexpr DType kType = DType::kQ4_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt<T>(
            x, x_stride, [](const ActivationBlock& b) { return b.from_8; }, dots);
        DotNibbles<T>(w, x, x_stride, dots);
        AddScaled<T>(LoadHalves(w + 256), x, x_stride, dots, sums);
    }
};

struct BlockQ4_1 {
    static constexpr DType kType = DType::kQ4_1;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAtZero<T>(dots);
        DotNibbles<T>(w, x, x_stride, dots);
        AddScaled<T>(LoadHalves(w + 256), x, x_stride, dots, sums);
        AddMin<T>(LoadHalves(w + 288), x, x_stride, sums);
    }
};

struct BlockQ8_0 {
    static constexpr DType kType = DType::kQ8_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt<T>(
            x, x_stride, [](const ActivationBlock& b) { return b.from_128; }, dots);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {  // int8 + 128 is the byte with its top bit flipped
            const __m512i bytes = _mm512_xor_si512(LoadBytes(w + 64 * j), _mm512_set1_epi8(-128));
            Dot<T>(bytes, x, x_stride, 4 * j, dots);
        }
        AddScaled<T>(LoadHalves(w + 512), x, x_stride, dots, sums);
    }
};

struct BlockQ4_K {
    static constexpr DType kType = DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m512 LoadU8(const std::byte* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
    }
    // Sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int j, __m512 d, __m512 minus_dmin,
                              const ActivationBlock* x, int64_t x_stride, __m512 (&sums)[T]) {
        const std::byte* quants = w + 320 + j / 2 * 512;
        __m512i dots[T];
        StartAtZero<T>(dots);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m512i bytes = LoadBytes(quants + 64 * i);
            Dot<T>(kHigh ? HighNibbles(bytes) : LowNibbles(bytes), x + j, x_stride, 4 * i, dots);
        }
        AddScaled<T>(_mm512_mul_ps(d, LoadU8(w + 64 + 16 * j)), x + j, x_stride, dots, sums);
        AddMin<T>(_mm512_mul_ps(minus_dmin, LoadU8(w + 192 + 16 * j)), x + j, x_stride, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        const __m512 d = LoadHalves(w);
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 32));
#pragma GCC unroll 1
        for (int j = 0; j < 8; j += 2) {
            TimesSub<T, false>(w, j, d, minus_dmin, x, x_stride, sums);
            TimesSub<T, true>(w, j + 1, d, minus_dmin, x, x_stride, sums);
        }
    }
};

// Element 128h + 32g + 4i + n of a block: its low nibble is in byte n of dword 2(8h + i) + g % 2,
// in the upper half for g >= 2; its high pair in bits 2g of byte n of the dword that follows those.
struct BlockQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m512 Scale(const std::byte* w, int i) {
        const auto* scales = reinterpret_cast<const __m128i*>(w + 32 + 16 * i);
        const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(scales));
        return _mm512_mul_ps(LoadHalves(w), _mm512_cvtepi32_ps(wide));
    }
    // Four weights a lane of group kGroup.
    template <int kGroup>
    WEFT_INLINE __m512i Weights(__m512i nibbles, __m512i pairs) {
        const __m512i bits_0_3 = kGroup < 2 ? nibbles : _mm512_srli_epi16(nibbles, 4);
        const __m512i bits_4_5 = kGroup == 0   ? _mm512_slli_epi16(pairs, 4)
                                 : kGroup == 1 ? _mm512_slli_epi16(pairs, 2)
                                 : kGroup == 2 ? pairs
                                               : _mm512_srli_epi16(pairs, 2);
        const __m512i both =
            _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), bits_0_3, bits_4_5, 0xca);
        return _mm512_and_si512(both, _mm512_set1_epi8(63));
    }
    template <int T>
    WEFT_INLINE void Start(const ActivationBlock* x, int64_t x_stride, int s, __m512i (&dots)[T]) {
        StartAt<T>(
            x, x_stride, [s](const ActivationBlock& b) { return b.from_32[s]; }, dots);
    }
    // The four dwords from i = 4s on of one half. Few tokens: all groups of a dword at once, so
    // that the weights are read as one stream.
    template <int T>
    WEFT_INLINE void TimesAll(const std::byte* w, int half, int s, const ActivationBlock* x,
                              int64_t x_stride, __m512 (&sums)[T]) {
        const std::byte* quants = w + 288 + (half * 8 + s * 4) * 192;
        __m512i dots[4][T];
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) Start<T>(x + g, x_stride, s, dots[g]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i a = LoadBytes(quants + i * 192);
            const __m512i b = LoadBytes(quants + i * 192 + 64);
            const __m512i pairs = LoadBytes(quants + i * 192 + 128);
            const int offset = 16 * s + 4 * i;
            Dot<T>(Weights<0>(a, pairs), x, x_stride, offset, dots[0]);
            Dot<T>(Weights<1>(b, pairs), x + 1, x_stride, offset, dots[1]);
            Dot<T>(Weights<2>(a, pairs), x + 2, x_stride, offset, dots[2]);
            Dot<T>(Weights<3>(b, pairs), x + 3, x_stride, offset, dots[3]);
        }
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            AddScaled<T>(Scale(w, half * 8 + 2 * g + s), x + g, x_stride, dots[g], sums);
        }
    }
    // Many tokens: one group at a time.
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, int s, const ActivationBlock* x,
                                int64_t x_stride, __m512 (&sums)[T]) {
        const std::byte* quants = w + 288 + (half * 8 + s * 4) * 192;
        __m512i dots[T];
        Start<T>(x + kGroup, x_stride, s, dots);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i nibbles = LoadBytes(quants + i * 192 + kGroup % 2 * 64);
            const __m512i pairs = LoadBytes(quants + i * 192 + 128);
            Dot<T>(Weights<kGroup>(nibbles, pairs), x + kGroup, x_stride, 16 * s + 4 * i, dots);
        }
        AddScaled<T>(Scale(w, half * 8 + 2 * kGroup + s), x + kGroup, x_stride, dots, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
#pragma GCC unroll 1
        for (int step = 0; step < 4; ++step) {
            const int half = step / 2, s = step % 2;
            const ActivationBlock* x_half = x + 4 * half;
            if constexpr (T <= 4) {
                TimesAll<T>(w, half, s, x_half, x_stride, sums);
            } else {
                TimesGroup<T, 0>(w, half, s, x_half, x_stride, sums);
                TimesGroup<T, 1>(w, half, s, x_half, x_stride, sums);
                TimesGroup<T, 2>(w, half, s, x_half, x_stride, sums);
                TimesGroup<T, 3>(w, half, s, x_half, x_stride, sums);
            }
        }
    }
};

}  // namespace weft::kernels::avx512
