// One packed block of a strip times a tile of tokens, for each type (layouts: kernels/strips.h).
//
// A Block type has kType, kUnits (activation blocks that one weight block spans) and
//   Times<T>(w, x, x_stride, sums): sums[t] += block at w times the activations x + t * x_stride.
// sums are 16 rows wide. Everything is inlined into the tile loops of matmul.cc; T is at most 12.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/strips.h"

namespace weft::kernels::avx512 {

using strips::ActivationBlock;

#define WEFT_INLINE [[gnu::always_inline]] static inline

WEFT_INLINE __m512i LoadBytes(const std::byte* p) { return _mm512_loadu_si512(p); }

WEFT_INLINE __m512 LoadHalves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Four int8 of an activation block in every lane.
WEFT_INLINE __m512i Quad(const ActivationBlock& x, int offset) {
    int32_t quad;
    std::memcpy(&quad, x.q + offset, sizeof quad);
    return _mm512_set1_epi32(quad);
}

WEFT_INLINE __m512i LowNibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
WEFT_INLINE __m512i HighNibbles(__m512i v) { return LowNibbles(_mm512_srli_epi16(v, 4)); }

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
WEFT_INLINE void AddMin(__m512 min, const ActivationBlock* x, int64_t x_stride,
                        __m512 (&sums)[T]) {
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
        StartAt<T>(x, x_stride, [](const ActivationBlock& b) { return b.from_8; }, dots);
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
        StartAt<T>(x, x_stride, [](const ActivationBlock& b) { return b.from_128; }, dots);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {  // int8 + 128 is the byte with its top bit flipped
            const __m512i bytes =
                _mm512_xor_si512(LoadBytes(w + 64 * j), _mm512_set1_epi8(-128));
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
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        const __m512 d = LoadHalves(w + 2048);
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 2080));
#pragma GCC unroll 1
        for (int j = 0; j < 8; ++j) {
            const std::byte* quants = w + j / 2 * 512;
            const __m128i shift = _mm_cvtsi32_si128(j % 2 * 4);
            __m512i dots[T];
            StartAtZero<T>(dots);
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                const __m512i bytes = _mm512_srl_epi16(LoadBytes(quants + 64 * i), shift);
                Dot<T>(LowNibbles(bytes), x + j, x_stride, 4 * i, dots);
            }
            AddScaled<T>(_mm512_mul_ps(d, LoadU8(w + 2112 + 16 * j)), x + j, x_stride, dots, sums);
            AddMin<T>(_mm512_mul_ps(minus_dmin, LoadU8(w + 2240 + 16 * j)), x + j, x_stride, sums);
        }
    }
};

// Element 128h + 32g + l: low nibble in dword 16h + 8(g % 2) + l / 4, its upper half for g >= 2;
// high pair in bits 2g of the bytes of dword 8h + l / 4.
struct BlockQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m512 LoadI8(const std::byte* p) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
    // Four 6-bit weights a lane: the low nibbles of `low`, bits 4 and 5 of `high`'s bytes.
    WEFT_INLINE __m512i Join(__m512i low, __m512i high) {
        const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xca);
        return _mm512_and_si512(both, _mm512_set1_epi8(63));
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, const ActivationBlock* x, int64_t x_stride,
                           __m512 (&sums)[T]) {
        const __m512 d = LoadHalves(w + 3328);
#pragma GCC unroll 1
        for (int u = 0; u < 8; ++u) {
            const int half = u / 4, g = u % 4;
            const std::byte* low = w + half * 1024 + g % 2 * 512;
            const std::byte* high = w + 2048 + half * 512;
            const __m128i low_right = _mm_cvtsi32_si128(g / 2 * 4);
            const __m128i high_left = _mm_cvtsi32_si128(g < 2 ? 4 - 2 * g : 0);
            const __m128i high_right = _mm_cvtsi32_si128(g < 2 ? 0 : 2 * g - 4);
#pragma GCC unroll 2
            for (int s = 0; s < 2; ++s) {
                __m512i dots[T];
                StartAt<T>(x + u, x_stride, [s](const ActivationBlock& b) { return b.from_32[s]; },
                           dots);
#pragma GCC unroll 4
                for (int i = 4 * s; i < 4 * s + 4; ++i) {
                    const __m512i high_bits = _mm512_srl_epi16(
                        _mm512_sll_epi16(LoadBytes(high + 64 * i), high_left), high_right);
                    const __m512i low_bits = _mm512_srl_epi16(LoadBytes(low + 64 * i), low_right);
                    Dot<T>(Join(low_bits, high_bits), x + u, x_stride, 4 * i, dots);
                }
                AddScaled<T>(_mm512_mul_ps(d, LoadI8(w + 3072 + 16 * (2 * u + s))), x + u, x_stride,
                             dots, sums);
            }
        }
    }
};

}  // namespace weft::kernels::avx512
