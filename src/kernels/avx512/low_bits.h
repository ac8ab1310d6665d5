// Blocks of two- and three-bit weights, with the interface of blocks.h.
//
// Q2_K and Q3_K have a small integer scale for each 16 columns. The dot products of the two halves
// of a unit are combined as integers, sc_0 * dot_0 + sc_1 * dot_1, so that floats are added once
// per 32 columns. For one token, the dot products are multiplied by the scales; for many tokens,
// the weights are multiplied by the scales. Both give the same integers.
#pragma once

#include "kernels/avx512/blocks.h"

namespace weft::kernels::avx512 {

// Copies the low half of each lane to both halves.
WEFT_INLINE __m512i InBothHalves(__m512i v) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, v, _mm512_slli_epi32(v, 16));
}

// dots[t] = `member` (an int32) of token t's activation block, divided by 2^kShift.
template <int kShift, int T, typename Member>
WEFT_INLINE void StartAtPart(__m512i (&dots)[T], Tokens x, const Member& member) {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
        dots[t] = _mm512_srai_epi32(_mm512_set1_epi32(member(x[t])), kShift);
    }
}

// Bits 2 * kGroup and 2 * kGroup + 1 of each byte.
template <int kGroup>
WEFT_INLINE __m512i BitPairs(__m512i bytes) {
    const __m512i moved = kGroup == 0 ? bytes : _mm512_srli_epi16(bytes, 2 * kGroup);
    return _mm512_and_si512(moved, _mm512_set1_epi8(3));
}

// A block of two halves. One token is multiplied by all groups of a dword at once, so that weights
// are read in the order of memory: Block::DotOne(w, half, x, dots) computes the dot products of the
// four groups, and Block::Finish(w, half, g, x, dots, sums) adds those of group g to the sums.
template <typename Block>
struct OneByHalves : InHalves<Block> {
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
#pragma GCC unroll 1
        for (int half = 0; half < 2; ++half) {
            if constexpr (T == 1) {
                __m512i dots[4][1];
                Block::DotOne(w, half, x + 4 * half, dots);
#pragma GCC unroll 4
                for (int g = 0; g < 4; ++g) {
                    Block::Finish(w, half, g, x + 4 * half + g, dots[g], sums);
                }
            } else {
                InHalves<Block>::TimesHalf(w, half, x + 4 * half, sums);
            }
        }
    }
    template <int kStep>
    WEFT_INLINE void TimesUnits(const std::byte* w, Tokens x, __m512 (&sums)[8 / kStep][1]) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            __m512i dots[4][1];
            Block::DotOne(w, half, x + 4 * half, dots);
#pragma GCC unroll 4
            for (int g = 0; g < 4; ++g) {
                const int unit = 4 * half + g;
                Block::Finish(w, half, g, x + unit, dots[g], sums[unit / kStep]);
            }
        }
    }
};

// Element 128h + 32g + 4i + n of a block is in byte n of dword 8h + i, in the two bits from bit 2g
// on.
struct BlockQ2_K : OneByHalves<BlockQ2_K> {
    static constexpr DType kType = DType::kQ2_K;
    static constexpr int64_t kQuants = 320;
    // The scales of 16 columns, and the negated minima.
    WEFT_INLINE __m512i Scale(const std::byte* w, int s) {
        return _mm512_and_si512(WideU8(w + 64 + 16 * s), _mm512_set1_epi32(15));
    }
    WEFT_INLINE __m512 Min(const std::byte* w, int s) {
        const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), LoadHalves(w + 32));
        const __m512i min = _mm512_srli_epi32(WideU8(w + 64 + 16 * s), 4);
        return _mm512_mul_ps(minus_dmin, _mm512_cvtepi32_ps(min));
    }
    // Adds the dot products of group g of a half to the sums. The sums must be complete.
    template <int T>
    WEFT_INLINE void Finish(const std::byte* w, int half, int g, Tokens x, const __m512i (&dots)[T],
                            __m512 (&sums)[T]) {
        AddScaled<T>(LoadHalves(w), x, dots, sums);
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            const __m512 min = Min(w, 8 * half + 2 * g + s);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) {
                const __m512 own = _mm512_set1_ps(x[t].scaled_half[s]);
                sums[t] = _mm512_fmadd_ps(min, own, sums[t]);
            }
        }
    }
    WEFT_INLINE void DotOne(const std::byte* w, int half, Tokens x, __m512i (&all)[4][1]) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            __m512i dots[4][1];
#pragma GCC unroll 4
            for (int g = 0; g < 4; ++g) StartAtZero<1>(dots[g]);
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m512i bytes = LoadBytes(w + kQuants + (8 * half + i) * 64);
                Dot<1>(BitPairs<0>(bytes), x, 4 * i, dots[0]);
                Dot<1>(BitPairs<1>(bytes), x + 1, 4 * i, dots[1]);
                Dot<1>(BitPairs<2>(bytes), x + 2, 4 * i, dots[2]);
                Dot<1>(BitPairs<3>(bytes), x + 3, 4 * i, dots[3]);
            }
#pragma GCC unroll 4
            for (int g = 0; g < 4; ++g) {
                const __m512i scaled =
                    _mm512_mullo_epi32(dots[g][0], Scale(w, 8 * half + 2 * g + s));
                all[g][0] = s == 0 ? scaled : _mm512_add_epi32(all[g][0], scaled);
            }
        }
    }
    // For many tokens: computes one group at a time. A weight times its scale is at most 3 * 15.
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAtZero<T>(dots);
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            const __m512i scale = InBothHalves(Scale(w, 8 * half + 2 * kGroup + s));
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m512i bytes = LoadBytes(w + kQuants + (8 * half + i) * 64);
                const __m512i weights = _mm512_mullo_epi16(BitPairs<kGroup>(bytes), scale);
                Dot<T>(weights, x + kGroup, 4 * i, dots);
            }
        }
        Finish<T>(w, half, kGroup, x + kGroup, dots, sums);
    }
};

// Element 32g + 4i + n of a block is in byte n of the three dwords a, b, c of step i, which hold
// the codes as described in weight_tiles.h. Code 4 means zero.
struct BlockQ3_K {
    static constexpr DType kType = DType::kQ3_K;
    static constexpr int64_t kUnits = 8;
    static constexpr int64_t kQuants = 288;
    template <int kGroup>
    WEFT_INLINE __m512i Codes(const std::byte* step) {
        const __m512i seven = _mm512_set1_epi8(7);
        const __m512i own = LoadBytes(step + (kGroup < 6 ? kGroup / 2 : kGroup - 6) * 64);
        if constexpr (kGroup < 6) {
            const __m512i moved = kGroup % 2 == 0 ? own : _mm512_srli_epi16(own, 3);
            return _mm512_and_si512(moved, seven);
        } else {
            const __m512i third = _mm512_srli_epi16(LoadBytes(step + 128), kGroup - 2);
            const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3),
                                                           _mm512_srli_epi16(own, 6), third, 0xca);
            return _mm512_and_si512(both, seven);
        }
    }
    template <int kGroup>
    WEFT_INLINE void DotOne(const std::byte* step, int i, Tokens x, __m512i (&dots)[8][1]) {
        Dot<1>(Codes<kGroup>(step), x + kGroup, 4 * i, dots[kGroup]);
        if constexpr (kGroup < 7) DotOne<kGroup + 1>(step, i, x, dots);
    }
    // For one token: computes all groups of a step at once, so that weights are read in the order
    // of memory.
    template <int kStep>
    WEFT_INLINE void TimesUnits(const std::byte* w, Tokens x, __m512 (&sums)[8 / kStep][1]) {
        __m512i all[8][1];
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            __m512i dots[8][1];
#pragma GCC unroll 8
            for (int g = 0; g < 8; ++g) {
                StartAtPart<3>(dots[g], x + g,
                               [s](const ActivationBlock& b) { return b.from_32[s]; });
            }
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) DotOne<0>(w + kQuants + 192 * i, i, x, dots);
#pragma GCC unroll 8
            for (int g = 0; g < 8; ++g) {
                const __m512i scaled =
                    _mm512_mullo_epi32(dots[g][0], WideI8(w + 32 + 16 * (2 * g + s)));
                all[g][0] = s == 0 ? scaled : _mm512_add_epi32(all[g][0], scaled);
            }
        }
#pragma GCC unroll 8
        for (int g = 0; g < 8; ++g) {
            AddScaled<1>(LoadHalves(w), x + g, all[g], sums[g / kStep]);
        }
    }
    // For many tokens: computes one group. (code - 4) * scale is in [-124, 128], so that plus 124
    // it is a byte. Two bytes are multiplied at once; the carry from the lower byte is removed by
    // adding 124 - 4 * scale.
    template <int T, int kGroup>
    WEFT_INLINE void TimesGroup(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt(dots, x + kGroup,
                [](const ActivationBlock& b) { return b.from_128 - (b.from_128 >> 5); });
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            const __m512i scale = InBothHalves(WideI8(w + 32 + 16 * (2 * kGroup + s)));
            const __m512i from =
                _mm512_sub_epi16(_mm512_set1_epi16(124 * 257),
                                 _mm512_mullo_epi16(scale, _mm512_set1_epi16(4 * 257)));
#pragma GCC unroll 4
            for (int i = 4 * s; i < 4 * s + 4; ++i) {
                const __m512i codes = Codes<kGroup>(w + kQuants + 192 * i);
                const __m512i weights = _mm512_add_epi16(_mm512_mullo_epi16(codes, scale), from);
                Dot<T>(weights, x + kGroup, 4 * i, dots);
            }
        }
        AddScaled<T>(LoadHalves(w), x + kGroup, dots, sums);
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesGroups(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        TimesGroup<T, kGroup>(w, x, sums);
        if constexpr (kGroup < 7) TimesGroups<T, kGroup + 1>(w, x, sums);
    }
    template <int T>
    WEFT_INLINE void Times(const std::byte* w, Tokens x, __m512 (&sums)[T]) {
        if constexpr (T == 1) {
            __m512 own[1][1] = {{sums[0]}};
            TimesUnits<8>(w, x, own);
            sums[0] = own[0][0];
        } else {
            TimesGroups<T>(w, x, sums);
        }
    }
    template <int T, int kGroup = 0>
    WEFT_INLINE void TimesUnit(const std::byte* w, int unit, Tokens x, __m512 (&sums)[T]) {
        if (unit == kGroup) return TimesGroup<T, kGroup>(w, x, sums);
        if constexpr (kGroup < 7) TimesUnit<T, kGroup + 1>(w, unit, x, sums);
    }
};

// TQ2_0, and TQ1_0 that is repacked as TQ2_0. Codes have the layout of Q2_K; code 1 means zero.
// There is one scale per block.
struct BlockTernary : OneByHalves<BlockTernary> {
    static constexpr DType kType = DType::kTQ2_0;
    template <int T>
    WEFT_INLINE void Start(Tokens x, __m512i (&dots)[T]) {
        StartAtPart<3>(dots, x, [](const ActivationBlock& b) { return b.from_8; });
    }
    template <int T>
    WEFT_INLINE void Finish(const std::byte* w, int /*half*/, int /*g*/, Tokens x,
                            const __m512i (&dots)[T], __m512 (&sums)[T]) {
        AddScaled<T>(LoadHalves(w), x, dots, sums);
    }
    WEFT_INLINE void DotOne(const std::byte* w, int half, Tokens x, __m512i (&dots)[4][1]) {
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) Start<1>(x + g, dots[g]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m512i bytes = LoadBytes(w + 32 + (8 * half + i) * 64);
            Dot<1>(BitPairs<0>(bytes), x, 4 * i, dots[0]);
            Dot<1>(BitPairs<1>(bytes), x + 1, 4 * i, dots[1]);
            Dot<1>(BitPairs<2>(bytes), x + 2, 4 * i, dots[2]);
            Dot<1>(BitPairs<3>(bytes), x + 3, 4 * i, dots[3]);
        }
    }
    template <int kGroup, int T>
    WEFT_INLINE void TimesGroup(const std::byte* w, int half, Tokens x, __m512 (&sums)[T]) {
        __m512i dots[T];
        Start<T>(x + kGroup, dots);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const __m512i bytes = LoadBytes(w + 32 + (8 * half + i) * 64);
            Dot<T>(BitPairs<kGroup>(bytes), x + kGroup, 4 * i, dots);
        }
        AddScaled<T>(LoadHalves(w), x + kGroup, dots, sums);
    }
};

}  // namespace weft::kernels::avx512
