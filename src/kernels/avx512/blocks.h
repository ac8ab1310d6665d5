// Products of one packed block of a strip (16 rows) with a tile of T tokens, for each type
// (layouts: kernels/weight_tiles.h).
//
// A Block type has kType, kUnits (activation blocks per weight block) and
//   Times<T>(w, x, sums): sums[t] += block at w times the activations x[t] (vector/tokens.h);
//   most blocks of several units take a StepFetch as their last argument (prefetch.h);
// if kUnits is not 1, also
//   TimesUnit<T>(w, unit, x, sums): the same for one unit of the block;
// and if a block can only be read as one stream for all its units, also
//   TimesUnits<kStep>(w, x, sums): TimesUnit for one token and each unit u, into sums[u / kStep].
// Weights are read in address order, for the hardware's prefetching (measured on Zen 4).
// A vector of sums has one lane for each of the 16 rows. Everything is inlined into the tile loops
// of matmul.cc; T is at most 12.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/vector/steps.h"
#include "tensor/quant_bytes.h"

namespace weft::kernels::avx512 {

WEFT_INLINE __m512i LoadBytes(const std::byte* p) {
    return _mm512_loadu_si512(p);
}

WEFT_INLINE Float LoadHalves(const std::byte* p) {
    return Simd::LoadF16(p);
}

// Widens 16 bytes to 32-bit lanes.
WEFT_INLINE __m512i WideU8(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
WEFT_INLINE __m512i WideI8(const std::byte* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Copies four int8 of an activation block to every lane.
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

// Adds to dots[t] the dot product of four u8 weights per lane and token t's four activations at
// `offset`.
template <int T>
WEFT_INLINE void Dot(__m512i weights, Tokens x, int offset, __m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        dots[t] = _mm512_dpbusd_epi32(dots[t], weights, Quad(x[t], offset));
    }
}

// sums[t] += scale * (scale of token t's activations) * dots[t].
template <int T>
WEFT_INLINE void AddScaled(__m512 scale, Tokens x, const __m512i (&dots)[T], __m512 (&sums)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scale));
        sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), both, sums[t]);
    }
}

// sums[t] += min * (sum of token t's activations).
template <int T>
WEFT_INLINE void AddMin(__m512 min, Tokens x, __m512 (&sums)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        sums[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x[t].scaled_sum), sums[t]);
    }
}

template <int T>
WEFT_INLINE void StartAtZero(__m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) dots[t] = _mm512_setzero_si512();
}

// dots[t] = `member` of token t's activation block: the product of the zero point and the
// activations (ActivationBlock).
template <int T, typename Member>
WEFT_INLINE void StartAt(__m512i (&dots)[T], Tokens x, const Member& member) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) dots[t] = _mm512_set1_epi32(member(x[t]));
}

// Multiplies 32 weights of 4 bits: byte 4j + i of a lane's 16 holds k = 4j + i and k = 16 + 4j + i.
template <int T>
WEFT_INLINE void DotNibbles(const std::byte* w, Tokens x, __m512i (&dots)[T]) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i bytes = LoadBytes(w + 64 * j);
        Dot<T>(LowNibbles(bytes), x, 4 * j, dots);
        Dot<T>(HighNibbles(bytes), x, 16 + 4 * j, dots);
    }
}

// Adds bit kBit of each byte of `bits` to the nibbles as the fifth bit.
template <int kBit>
WEFT_INLINE __m512i FiveBits(__m512i nibbles, __m512i bits) {
    __m512i moved = bits;
    if constexpr (kBit < 4) moved = _mm512_slli_epi16(bits, 4 - kBit);
    if constexpr (kBit > 4) moved = _mm512_srli_epi16(bits, kBit - 4);
    return _mm512_or_si512(nibbles, _mm512_and_si512(moved, _mm512_set1_epi8(16)));
}

// Multiplies 32 weights of 5 bits, packed as in Q5_0.
template <int T, int kPart = 0>
WEFT_INLINE void DotFiveBits(const std::byte* w, __m512i bits, Tokens x, __m512i (&dots)[T]) {
    if constexpr (kPart < 4) {
        const __m512i bytes = LoadBytes(w + 64 * kPart);
        Dot<T>(FiveBits<kPart>(LowNibbles(bytes), bits), x, 4 * kPart, dots);
        Dot<T>(FiveBits<kPart + 4>(HighNibbles(bytes), bits), x, 16 + 4 * kPart, dots);
        DotFiveBits<T, kPart + 1>(w, bits, x, dots);
    }
}

// Q4_0, Q4_1, Q5_0 or Q5_1.
template <DType kOf>
struct BlockOf32 {
    static constexpr DType kType = kOf;
    static constexpr int64_t kUnits = 1;
    static constexpr bool kFive = kOf == DType::kQ5_0 || kOf == DType::kQ5_1;
    static constexpr bool kHasMin = kOf == DType::kQ4_1 || kOf == DType::kQ5_1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        constexpr int kFrom = kHasMin ? 0 : kFive ? 2 : 1, kScale = kFive ? 320 : 256;
        __m512i dots[T];
        StartAt(dots, x, [](const ActivationBlock& b) { return kFrom * b.from_8; });
        if constexpr (kFive) {
            DotFiveBits<T>(w, LoadBytes(w + 256), x, dots);
        } else {
            DotNibbles<T>(w, x, dots);
        }
        AddScaled<T>(LoadHalves(w + kScale), x, dots, sums);
        if constexpr (kHasMin) AddMin<T>(LoadHalves(w + kScale + 32), x, sums);
    }
};
using BlockQ4_0 = BlockOf32<DType::kQ4_0>;
using BlockQ4_1 = BlockOf32<DType::kQ4_1>;
using BlockQ5_0 = BlockOf32<DType::kQ5_0>;
using BlockQ5_1 = BlockOf32<DType::kQ5_1>;

// Loads the 16 values that nibbles represent, plus 128, into each 128 bits of the vector.
WEFT_INLINE __m512i Table(const std::array<int8_t, 16>& values) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values.data()));
    return _mm512_broadcast_i32x4(_mm_xor_si128(table, _mm_set1_epi8(-128)));
}

// Multiplies 32 weights, which are nibbles that index `table`. The dot products start at from_128.
template <int T>
WEFT_INLINE void DotChosen(const std::byte* w, __m512i table, Tokens x, __m512i (&dots)[T]) {
    StartAt(dots, x, [](const ActivationBlock& b) { return b.from_128; });
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
        const __m512i bytes = LoadBytes(w + 64 * j);
        Dot<T>(_mm512_shuffle_epi8(table, LowNibbles(bytes)), x, 4 * j, dots);
        Dot<T>(_mm512_shuffle_epi8(table, HighNibbles(bytes)), x, 16 + 4 * j, dots);
    }
}

struct BlockIQ4_NL {
    static constexpr DType kType = DType::kIQ4_NL;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        DotChosen<T>(w, Table(quant::kIq4Values), x, dots);
        AddScaled<T>(LoadHalves(w + 256), x, dots, sums);
    }
};

struct BlockIQ4_XS : UnitByUnit<BlockIQ4_XS, 8> {
    static constexpr DType kType = DType::kIQ4_XS;
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int s, Tokens x, __m512 (&sums)[T]) {
        const __m512 wide = _mm512_cvtepi32_ps(WideI8(w + 32 + 16 * s));
        __m512i dots[T];
        DotChosen<T>(w + 160 + 256 * s, Table(quant::kIq4Values), x + s, dots);
        AddScaled<T>(_mm512_mul_ps(LoadHalves(w), wide), x + s, dots, sums);
    }
};

// The scale is 2^(e - 128), because the table holds doubled values. It is denormal for e below 2.
struct BlockMXFP4 {
    static constexpr DType kType = DType::kMXFP4;
    static constexpr int64_t kUnits = 1;
    WEFT_INLINE __m512 Scale(const std::byte* p) {
        const __m512i e = WideU8(p);
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
        const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), e);
        const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
        return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        DotChosen<T>(w, Table(quant::kMxfp4Values), x, dots);
        AddScaled<T>(Scale(w + 256), x, dots, sums);
    }
};

// Two units of 32 columns; each half of a unit has its own scale.
struct BlockNVFP4 : UnitByUnit<BlockNVFP4, 2> {
    static constexpr DType kType = DType::kNVFP4;
    // The scale of columns [16 i, 16 i + 16).
    WEFT_INLINE __m512 Scale(const std::byte* w, int i) {
        const __m512i exponent = _mm512_slli_epi32(WideU8(w + 576 + 16 * i), 20);
        const __m512i bits = _mm512_add_epi32(exponent, _mm512_set1_epi32(kNvScaleBase));
        return _mm512_mul_ps(_mm512_castsi512_ps(LoadBytes(w + 512)), _mm512_castsi512_ps(bits));
    }
    template <int T, bool kHigh>
    WEFT_INLINE void TimesHalf(const std::byte* w, int unit, __m512i table, Tokens x,
                               __m512 (&sums)[T]) {
        constexpr int kHalf = kHigh ? 1 : 0;
        __m512i dots[T];  // -128 sum(q) over the half
        StartAt(dots, x + unit, [](const ActivationBlock& b) { return 4 * b.from_32[kHalf]; });
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            const __m512i bytes = LoadBytes(w + 256 * unit + 64 * j);
            const __m512i codes = kHigh ? HighNibbles(bytes) : LowNibbles(bytes);
            Dot<T>(_mm512_shuffle_epi8(table, codes), x + unit, 16 * kHalf + 4 * j, dots);
        }
        AddScaled<T>(Scale(w, 2 * unit + kHalf), x + unit, dots, sums);
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, __m512 (&sums)[T]) {
        const __m512i table = Table(quant::kMxfp4Values);
        TimesHalf<T, false>(w, unit, table, x, sums);
        TimesHalf<T, true>(w, unit, table, x, sums);
    }
};

// Block headers of W4 and W8: a float scale with the zero point in its low 8 bits.
struct Head {
    __m512 scale;
    __m512i zero;
};
WEFT_INLINE Head LoadHead(const std::byte* p) {
    const __m512i head = LoadBytes(p), low = _mm512_set1_epi32(255);
    return {_mm512_castsi512_ps(_mm512_andnot_si512(low, head)), _mm512_and_si512(head, low)};
}

// dots[t] = -zero * (sum of token t's int8 activations).
template <int T>
WEFT_INLINE void StartAtZeroPoint(__m512i zero, Tokens x, __m512i (&dots)[T]) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        const int32_t minus_sum = x[t].from_8 / 8;
        dots[t] = _mm512_mullo_epi32(zero, _mm512_set1_epi32(minus_sum));
    }
}

struct BlockW4 {
    static constexpr DType kType = DType::kW4;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        const Head head = LoadHead(w + 256);
        __m512i dots[T];
        StartAtZeroPoint<T>(head.zero, x, dots);
        DotNibbles<T>(w, x, dots);
        AddScaled<T>(head.scale, x, dots, sums);
    }
};

struct BlockW8 {
    static constexpr DType kType = DType::kW8;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        const Head head = LoadHead(w + 512);
        __m512i dots[T];
        StartAtZeroPoint<T>(head.zero, x, dots);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) Dot<T>(LoadBytes(w + 64 * j), x, 4 * j, dots);
        AddScaled<T>(head.scale, x, dots, sums);
    }
};

struct BlockQ8_0 {
    static constexpr DType kType = DType::kQ8_0;
    static constexpr int64_t kUnits = 1;
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt(dots, x, [](const ActivationBlock& b) { return b.from_128; });
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {  // int8 + 128 is the byte with its top bit flipped
            const __m512i bytes = _mm512_xor_si512(LoadBytes(w + 64 * j), _mm512_set1_epi8(-128));
            Dot<T>(bytes, x, 4 * j, dots);
        }
        AddScaled<T>(LoadHalves(w + 512), x, dots, sums);
    }
};

// Q4_K, or Q5_K with kFive. In Q5_K, the fifth bits precede the quants; bit j of each byte of dword
// i belongs to sub-block j.
template <bool kFive>
struct BlockOfScalesAndMinima {
    static constexpr DType kType = kFive ? DType::kQ5_K : DType::kQ4_K;
    static constexpr int64_t kUnits = 8;
    static constexpr int64_t kQuants = kFive ? 832 : 320;
    WEFT_INLINE __m512 LoadU8(const std::byte* p) { return _mm512_cvtepi32_ps(WideU8(p)); }
    // Multiplies sub-block j: the low (kHigh: high) nibbles of chunk j / 2.
    template <int T, bool kHigh>
    WEFT_INLINE void TimesSub(const std::byte* w, int j, __m512 d, __m512 minus_dmin, Tokens x,
                              __m512 (&sums)[T]) {
        const std::byte* quants = w + kQuants + j / 2 * 512;
        [[maybe_unused]] const __m512i bit = _mm512_set1_epi8(static_cast<char>(1 << j));
        __m512i dots[T];
        StartAtZero<T>(dots);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m512i bytes = LoadBytes(quants + 64 * i);
            __m512i weights = kHigh ? HighNibbles(bytes) : LowNibbles(bytes);
            if constexpr (kFive) {
                const __mmask64 fifth = _mm512_test_epi8_mask(LoadBytes(w + 320 + 64 * i), bit);
                weights = _mm512_mask_add_epi8(weights, fifth, weights, _mm512_set1_epi8(16));
            }
            Dot<T>(weights, x + j, 4 * i, dots);
        }
        AddScaled<T>(_mm512_mul_ps(d, LoadU8(w + 64 + 16 * j)), x + j, dots, sums);
        AddMin<T>(_mm512_mul_ps(minus_dmin, LoadU8(w + 192 + 16 * j)), x + j, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T], Fetch fetch = {}) {
        const __m512 d = LoadHalves(w);
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 32));
#pragma GCC unroll 1
        for (int j = 0; j < 8; j += 2) {
            fetch(j / 2, 4);
            TimesSub<T, false>(w, j, d, minus_dmin, x, sums);
            TimesSub<T, true>(w, j + 1, d, minus_dmin, x, sums);
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int j, Tokens x, __m512 (&sums)[T]) {
        const __m512 d = LoadHalves(w);
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 32));
        if (j % 2 == 0) return TimesSub<T, false>(w, j, d, minus_dmin, x, sums);
        TimesSub<T, true>(w, j, d, minus_dmin, x, sums);
    }
};
using BlockQ4_K = BlockOfScalesAndMinima<false>;
using BlockQ5_K = BlockOfScalesAndMinima<true>;

// Element 128h + 32g + 4i + n of a block has its low 4 bits in byte n of dword 2(8h + i) + g % 2
// (for g >= 2, in the upper half of that byte). The weight's upper 2 bits are in byte n of the
// dword that follows these two, from bit 2g on.
struct BlockQ6_K {
    static constexpr DType kType = DType::kQ6_K;
    static constexpr int64_t kUnits = 8;
    WEFT_INLINE __m512 Scale(const std::byte* w, int i) {
        return _mm512_mul_ps(LoadHalves(w), _mm512_cvtepi32_ps(WideI8(w + 32 + 16 * i)));
    }
    // Four weights per lane, of group kGroup.
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
    WEFT_INLINE void Start(Tokens x, int s, __m512i (&dots)[T]) {
        StartAt(dots, x, [s](const ActivationBlock& b) { return b.from_32[s]; });
    }
    // Computes the dot products of each group, for the four dwords i = 4s to 4s + 3 of one half.
    // For few tokens: computes all groups of a dword at once, so that weights are read in the order
    // of memory.
    template <int T>
    WEFT_INLINE void DotAll(const std::byte* w, int half, int s, Tokens x, __m512i (&dots)[4][T]) {
        const std::byte* quants = w + 288 + (half * 8 + s * 4) * 192;
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) Start<T>(x + g, s, dots[g]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i a = LoadBytes(quants + i * 192);
            const __m512i b = LoadBytes(quants + i * 192 + 64);
            const __m512i pairs = LoadBytes(quants + i * 192 + 128);
            const int offset = 16 * s + 4 * i;
            Dot<T>(Weights<0>(a, pairs), x, offset, dots[0]);
            Dot<T>(Weights<1>(b, pairs), x + 1, offset, dots[1]);
            Dot<T>(Weights<2>(a, pairs), x + 2, offset, dots[2]);
            Dot<T>(Weights<3>(b, pairs), x + 3, offset, dots[3]);
        }
    }
    template <int T>
    WEFT_INLINE void TimesAll(const std::byte* w, int half, int s, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[4][T];
        DotAll<T>(w, half, s, x, dots);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
            AddScaled<T>(Scale(w, half * 8 + 2 * g + s), x + g, dots[g], sums);
        }
    }
    // For many tokens: computes one group at a time.
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, int s, Tokens x, __m512 (&sums)[T]) {
        const std::byte* quants = w + 288 + (half * 8 + s * 4) * 192;
        __m512i dots[T];
        Start<T>(x + kGroup, s, dots);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i nibbles = LoadBytes(quants + i * 192 + kGroup % 2 * 64);
            const __m512i pairs = LoadBytes(quants + i * 192 + 128);
            Dot<T>(Weights<kGroup>(nibbles, pairs), x + kGroup, 16 * s + 4 * i, dots);
        }
        AddScaled<T>(Scale(w, half * 8 + 2 * kGroup + s), x + kGroup, dots, sums);
    }
    template <int T, typename Fetch = NoFetch>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T], Fetch fetch = {}) {
#pragma GCC unroll 1
        for (int step = 0; step < 4; ++step) {
            fetch(step, 4);
            const int half = step / 2, s = step % 2;
            const Tokens x_half = x + 4 * half;
            if constexpr (T <= 4) {
                TimesAll<T>(w, half, s, x_half, sums);
            } else {
                TimesGroup<T, 0>(w, half, s, x_half, sums);
                TimesGroup<T, 1>(w, half, s, x_half, sums);
                TimesGroup<T, 2>(w, half, s, x_half, sums);
                TimesGroup<T, 3>(w, half, s, x_half, sums);
            }
        }
    }
    template <int kStep>
    WEFT_INLINE void TimesUnits(const std::byte* w, Tokens x, __m512 (&sums)[8 / kStep][1]) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            __m512i dots[2][4][1];
#pragma GCC unroll 2
            for (int s = 0; s < 2; ++s) DotAll<1>(w, half, s, x + 4 * half, dots[s]);
#pragma GCC unroll 4
            for (int g = 0; g < 4; ++g) {
                const int unit = 4 * half + g;
                for (int s = 0; s < 2; ++s) {
                    const __m512 scale = Scale(w, half * 8 + 2 * g + s);
                    AddScaled<1>(scale, x + unit, dots[s][g], sums[unit / kStep]);
                }
            }
        }
    }
    template <int T>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, __m512 (&sums)[T]) {
        const int half = unit / 4, group = unit % 4;
        x = x + 4 * half;
#pragma GCC unroll 1
        for (int s = 0; s < 2; ++s) {
            if (group == 0) TimesGroup<T, 0>(w, half, s, x, sums);
            if (group == 1) TimesGroup<T, 1>(w, half, s, x, sums);
            if (group == 2) TimesGroup<T, 2>(w, half, s, x, sums);
            if (group == 3) TimesGroup<T, 3>(w, half, s, x, sums);
        }
    }
};

}  // namespace weft::kernels::avx512
