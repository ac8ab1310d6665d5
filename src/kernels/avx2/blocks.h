// One packed block of half a strip (8 rows) times a tile of tokens, for each type (layouts:
// kernels/strips.h). The same integers and the same float operations as avx512/blocks.h.
//
// A Block type has kType, kUnits (activation blocks that one weight block spans) and
//   Times<T>(w, h, x, x_stride, sums): sums[t] += rows 8h.. of the block at w times the
// activations x + t * x_stride. Products are u8 * s8 added in pairs to 16 bits, so T tokens keep
// 16-bit sums, which never saturate: 4-bit weights 8 * 2 * 15 * 127, 5-bit ones 4 * 2 * 31 * 127,
// 6-bit ones 2 * 2 * 63 * 127.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/strips.h"
#include "tensor/quant_bytes.h"

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

// The nibbles with bit kBit of each byte of `bits` as the fifth.
template <int kBit>
WEFT_INLINE __m256i FiveBits(__m256i nibbles, __m256i bits) {
    __m256i moved = bits;
    if constexpr (kBit < 4) moved = _mm256_slli_epi16(bits, 4 - kBit);
    if constexpr (kBit > 4) moved = _mm256_srli_epi16(bits, kBit - 4);
    return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(16)));
}

// 32 weights of 5 bits, packed as those of Q5_0: 32-bit dots.
template <int T, int kPart = 0>
WEFT_INLINE void DotFiveBits(const std::byte* w, int h, __m256i bits, const ActivationBlock* x,
                             int64_t x_stride, __m256i (&dots)[T]) {
    if constexpr (kPart < 4) {
        __m256i short_dots[T];
        Zero<T>(short_dots);
        const __m256i a = LoadBytes(w + 64 * kPart, h), b = LoadBytes(w + 64 * kPart + 64, h);
        Dot<T>(FiveBits<kPart>(LowNibbles(a), bits), x, x_stride, 4 * kPart, short_dots);
        Dot<T>(FiveBits<kPart + 4>(HighNibbles(a), bits), x, x_stride, 16 + 4 * kPart, short_dots);
        Dot<T>(FiveBits<kPart + 1>(LowNibbles(b), bits), x, x_stride, 4 * kPart + 4, short_dots);
        Dot<T>(FiveBits<kPart + 5>(HighNibbles(b), bits), x, x_stride, 20 + 4 * kPart, short_dots);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const __m256i some = PairSums(short_dots[t]);
            dots[t] = kPart == 0 ? some : _mm256_add_epi32(dots[t], some);
        }
        DotFiveBits<T, kPart + 2>(w, h, bits, x, x_stride, dots);
    }
}

struct BlockQ5_0 {
    static constexpr DType kType = DType::kQ5_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotFiveBits<T>(w, h, LoadBytes(w + 256, h), x, x_stride, dots);
        const __m256 scale = LoadHalves(w + 320, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            const __m256i all = _mm256_add_epi32(dots[t], _mm256_set1_epi32(2 * own.from_8));
            sums[t] = AddScaled(scale, own, all, sums[t]);
        }
    }
};

struct BlockQ5_1 {
    static constexpr DType kType = DType::kQ5_1;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotFiveBits<T>(w, h, LoadBytes(w + 256, h), x, x_stride, dots);
        const __m256 scale = LoadHalves(w + 320, h), min = LoadHalves(w + 352, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            sums[t] = AddMin(min, own, AddScaled(scale, own, dots[t], sums[t]));
        }
    }
};

// dots[t] (32-bit) += int8 weights times the four activations at `offset`: the sign moves to the
// activations, and pairs stay below 2 * 128 * 127.
template <int T>
WEFT_INLINE void DotSigned(__m256i weights, const ActivationBlock* x, int64_t x_stride, int offset,
                           __m256i (&dots)[T]) {
    const __m256i size = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
        const __m256i quad = _mm256_sign_epi8(Quad(x[t * x_stride], offset), weights);
        dots[t] = _mm256_add_epi32(dots[t], PairSums(_mm256_maddubs_epi16(size, quad)));
    }
}

// 16 int8 in every 128 bits: what nibbles choose from.
WEFT_INLINE __m256i Table(const std::array<int8_t, 16>& values) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(values.data())));
}

// 32 weights that nibbles choose from `table`: 32-bit dots.
template <int T>
WEFT_INLINE void DotChosen(const std::byte* w, int h, __m256i table, const ActivationBlock* x,
                           int64_t x_stride, __m256i (&dots)[T]) {
    Zero<T>(dots);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m256i bytes = LoadBytes(w + 64 * j, h);
        DotSigned<T>(_mm256_shuffle_epi8(table, LowNibbles(bytes)), x, x_stride, 4 * j, dots);
        DotSigned<T>(_mm256_shuffle_epi8(table, HighNibbles(bytes)), x, x_stride, 16 + 4 * j, dots);
    }
}

// sums[t] += scale * x's scale * dots[t].
template <int T>
WEFT_INLINE void AddAllScaled(__m256 scale, const ActivationBlock* x, int64_t x_stride,
                              const __m256i (&dots)[T], __m256 (&sums)[T]) {
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sums[t] = AddScaled(scale, x[t * x_stride], dots[t], sums[t]);
}

struct BlockIQ4_NL {
    static constexpr DType kType = DType::kIQ4_NL;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotChosen<T>(w, h, Table(quant::kIq4Values), x, x_stride, dots);
        AddAllScaled<T>(LoadHalves(w + 256, h), x, x_stride, dots, sums);
    }
};

struct BlockIQ4_XS {
    static constexpr DType kType = DType::kIQ4_XS;
    static constexpr int64_t kUnits = 8;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        const __m256i table = Table(quant::kIq4Values);
#pragma GCC unroll 1
        for (int s = 0; s < 8; ++s) {
            const auto* scales = reinterpret_cast<const __m128i*>(w + 32 + 16 * s + 8 * h);
            const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(scales));
            const __m256 scale = _mm256_mul_ps(LoadHalves(w, h), _mm256_cvtepi32_ps(wide));
            __m256i dots[T];
            DotChosen<T>(w + 160 + 256 * s, h, table, x + s, x_stride, dots);
            AddAllScaled<T>(scale, x + s, x_stride, dots, sums);
        }
    }
};

// The scale is 2^(e - 128), for the table holds the values doubled; below e = 2 it is denormal.
struct BlockMXFP4 {
    static constexpr DType kType = DType::kMXFP4;
    static constexpr int64_t kUnits = 1;
    WEFT_INLINE __m256 Scale(const std::byte* p, int h) {
        const __m256i e =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h)));
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
        const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
        return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotChosen<T>(w, h, Table(quant::kMxfp4Values), x, x_stride, dots);
        AddAllScaled<T>(Scale(w + 256, h), x, x_stride, dots, sums);
    }
};

// Heads of W4 and W8: a float scale with the zero point in its low 8 bits.
struct Head {
    __m256 scale;
    __m256i zero;
};
WEFT_INLINE Head LoadHead(const std::byte* p, int h) {
    const __m256i head = LoadBytes(p, h), low = _mm256_set1_epi32(255);
    return {_mm256_castsi256_ps(_mm256_andnot_si256(low, head)), _mm256_and_si256(head, low)};
}

// -zero * sum(q).
WEFT_INLINE __m256i TimesZeroPoint(__m256i zero, const ActivationBlock& x) {
    return _mm256_mullo_epi32(zero, _mm256_set1_epi32(x.from_8 / 8));
}

struct BlockW4 {
    static constexpr DType kType = DType::kW4;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        __m256i dots[T];
        DotNibbles<T>(w, h, x, x_stride, dots);
        const Head head = LoadHead(w + 256, h);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            const __m256i from = TimesZeroPoint(head.zero, own);
            const __m256i all = _mm256_add_epi32(PairSums(dots[t]), from);
            sums[t] = AddScaled(head.scale, own, all, sums[t]);
        }
    }
};

// Bytes as int8 are 128 less, and so is the zero point then.
struct BlockW8 {
    static constexpr DType kType = DType::kW8;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, int h, const ActivationBlock* x, int64_t x_stride,
                           __m256 (&sums)[T]) {
        const Head head = LoadHead(w + 512, h);
        const __m256i zero = _mm256_sub_epi32(head.zero, _mm256_set1_epi32(128));
        __m256i dots[T];
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) dots[t] = TimesZeroPoint(zero, x[t * x_stride]);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            const __m256i bytes =
                _mm256_xor_si256(LoadBytes(w + 64 * j, h), _mm256_set1_epi8(-128));
            DotSigned<T>(bytes, x, x_stride, 4 * j, dots);
        }
        AddAllScaled<T>(head.scale, x, x_stride, dots, sums);
    }
};

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
            DotSigned<T>(LoadBytes(w + 64 * j, h), x, x_stride, 4 * j, dots);
        }
        AddAllScaled<T>(LoadHalves(w + 512, h), x, x_stride, dots, sums);
    }
};

// Q4_K, and Q5_K with kFive: its fifth bits lie before the quants, bit j of dword i for sub-block
// j.
template <bool kFive>
struct BlockOfScalesAndMinima {
    static constexpr DType kType = kFive ? DType::kQ5_K : DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    static constexpr int64_t kQuants = kFive ? 832 : 320;
    WEFT_INLINE __m256 LoadU8(const std::byte* p, int h) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * h));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    }
    // The weights of dwords [i, i + 4) of sub-block j: 16-bit dots.
    template <int T, bool kHigh>
    WEFT_INLINE void DotFour(const std::byte* w, int h, int j, int first, const ActivationBlock* x,
                             int64_t x_stride, __m256i (&short_dots)[T]) {
        const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
#pragma GCC unroll 4
        for (int i = first; i < first + 4; ++i) {
            const __m256i bytes = LoadBytes(w + kQuants + j / 2 * 512 + 64 * i, h);
            __m256i weights = kHigh ? HighNibbles(bytes) : LowNibbles(bytes);
            if constexpr (kFive) {
                const __m256i own = _mm256_and_si256(LoadBytes(w + 320 + 64 * i, h), bit);
                const __m256i fifth = _mm256_cmpeq_epi8(own, bit);
                weights = _mm256_or_si256(weights, _mm256_and_si256(fifth, _mm256_set1_epi8(16)));
            }
            Dot<T>(weights, x + j, x_stride, 4 * i, short_dots);
        }
    }
    // Sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int h, int j, const ActivationBlock* x,
                              int64_t x_stride, __m256 (&sums)[T]) {
        __m256i dots[T], more[T];
        Zero<T>(dots), Zero<T>(more);
        DotFour<T, kHigh>(w, h, j, 0, x, x_stride, dots);
        DotFour<T, kHigh>(w, h, j, 4, x, x_stride, kFive ? more : dots);
        const __m256 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), LoadHalves(w + 32, h));
        const __m256 scale = _mm256_mul_ps(LoadHalves(w, h), LoadU8(w + 64 + 16 * j, h));
        const __m256 min = _mm256_mul_ps(minus_dmin, LoadU8(w + 192 + 16 * j, h));
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[j + t * x_stride];
            __m256i all = PairSums(dots[t]);
            if constexpr (kFive) all = _mm256_add_epi32(all, PairSums(more[t]));
            sums[t] = AddMin(min, own, AddScaled(scale, own, all, sums[t]));
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
using BlockQ4_K = BlockOfScalesAndMinima<false>;
using BlockQ5_K = BlockOfScalesAndMinima<true>;

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
