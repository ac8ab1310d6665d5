// The micro-kernels of dense products for AVX-512 (dense/blocked.h): float32, and pairs of bfloat16
// for vdpbf16ps. Only for files that are compiled for the instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/avx512/lanes.h"
#include "kernels/dense/blocked.h"

namespace weft::kernels::avx512 {

// What both forms of units share: vectors of sixteen.
struct UnitVectors {
    using Vec = __m512i;
    static constexpr int64_t kLanes = 16;
    static Vec Zero() { return _mm512_setzero_si512(); }
    static void Store(std::byte* to, Vec x) { _mm512_storeu_si512(to, x); }
    // The first `count` units, or all that there are.
    static void StoreFirst(std::byte* to, Vec x, int64_t count) {
        count >= kLanes ? Store(to, x) : _mm512_mask_storeu_epi32(to, First(count), x);
    }
    static __mmask16 First(int64_t count) {  // of 0 or fewer: none; of 16 or more: all
        return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
    }
    // rows[i][j] becomes rows[j][i]: pairs, then fours, then squares of four lanes.
    static void Transpose(Vec* rows) {
        Vec x[16];
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            x[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
            x[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {
            rows[i] = _mm512_unpacklo_epi64(x[i], x[i + 2]);
            rows[i + 1] = _mm512_unpackhi_epi64(x[i], x[i + 2]);
            rows[i + 2] = _mm512_unpacklo_epi64(x[i + 1], x[i + 3]);
            rows[i + 3] = _mm512_unpackhi_epi64(x[i + 1], x[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {  // rows[4 g + i]: columns 4 q + i of rows 4 g..4 g + 3
            const Vec a = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
            const Vec b = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
            const Vec c = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
            const Vec d = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
            x[i] = _mm512_shuffle_i32x4(a, b, 0x88);
            x[8 + i] = _mm512_shuffle_i32x4(a, b, 0xdd);
            x[4 + i] = _mm512_shuffle_i32x4(c, d, 0x88);
            x[12 + i] = _mm512_shuffle_i32x4(c, d, 0xdd);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) rows[i] = x[i];
    }
};

// A unit is a float.
struct FloatUnits : UnitVectors {
    static constexpr int64_t kDepth = 1;
    // `count` units of one lane, side by side.
    static Vec LoadAlong(const float* from, int64_t count) {
        return _mm512_maskz_loadu_epi32(First(count), from);
    }
    static Vec LoadAlong(const uint16_t* from, int64_t count) {
        const __m256i halves = _mm256_maskz_loadu_epi16(First(count), from);
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    }
    static Vec LoadAlong(const dense::Half* from, int64_t count) {
        const __m256i halves = _mm256_maskz_loadu_epi16(First(count), from);
        return _mm512_castps_si512(_mm512_cvtph_ps(halves));
    }
    // One unit of `lanes` lanes, which are side by side; zeros where no depth is left.
    template <typename T>
    static Vec LoadAcross(const T* from, int64_t /*stride*/, int64_t left, int64_t lanes) {
        return left > 0 ? LoadAlong(from, lanes) : Zero();
    }
};

// A unit is a pair of bfloat16.
struct PairUnits : UnitVectors {
    static constexpr int64_t kDepth = 2;
    static Vec LoadAlong(const float* from, int64_t count) {
        const __m512 low = _mm512_maskz_loadu_ps(First(count), from);
        const __m512 high = _mm512_maskz_loadu_ps(First(count - 16), from + 16);
        return reinterpret_cast<Vec>(_mm512_cvtne2ps_pbh(high, low));
    }
    static Vec LoadAlong(const uint16_t* from, int64_t count) {
        const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
        return _mm512_maskz_loadu_epi16(mask, from);
    }
    static Vec LoadAlong(const dense::Half* from, int64_t count) {
        const __m512 low = Widened(from, First(count));
        const __m512 high = Widened(from + 16, First(count - 16));
        return reinterpret_cast<Vec>(_mm512_cvtne2ps_pbh(high, low));
    }
    template <typename T>
    static Vec LoadAcross(const T* from, int64_t stride, int64_t left, int64_t lanes) {
        if (left <= 0) return Zero();
        return Interleaved(from, left == 1 ? nullptr : from + stride, First(lanes));
    }

  private:
    static __m512 Widened(const float* from, __mmask16 mask) {
        return _mm512_maskz_loadu_ps(mask, from);
    }
    static __m512 Widened(const dense::Half* from, __mmask16 mask) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    }
    // Sixteen of `even` and sixteen of `odd` (null: zeros) become pairs.
    template <typename T>
    static Vec Interleaved(const T* even, const T* odd, __mmask16 mask) {
        const __m512 low = Widened(even, mask);
        const __m512 high = odd == nullptr ? _mm512_setzero_ps() : Widened(odd, mask);
        return Zip(reinterpret_cast<Vec>(_mm512_cvtne2ps_pbh(high, low)));
    }
    static Vec Interleaved(const uint16_t* even, const uint16_t* odd, __mmask16 mask) {
        const __m256i low = _mm256_maskz_loadu_epi16(mask, even);
        const __m256i high =
            odd == nullptr ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, odd);
        return Zip(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
    static Vec Zip(Vec halves) {
        const Vec low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const Vec order = _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
        return _mm512_permutexvar_epi16(_mm512_or_si512(order, _mm512_set1_epi32(16 << 16)),
                                        halves);
    }
};

inline __m512 AddProduct(FloatUnits, __m512 a, __m512 b, __m512 sum) {
    return _mm512_fmadd_ps(a, b, sum);
}
inline __m512 AddProduct(PairUnits, __m512 a, __m512 b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// 14 x 32 sums fill 28 of the 32 registers.
template <typename Units>
struct Micro {
    using Vectors = Lanes;
    static constexpr int64_t kRows = 14, kCols = 32;
    static constexpr int64_t kUnitDepth = Units::kDepth, kStep = kUnitDepth;
    static constexpr int64_t kMostDepth = 320 * kUnitDepth;
    static constexpr int64_t kWholeDepth = 640, kTileDepth = kWholeDepth;
    static constexpr int64_t kSlackBytes = 64;
    struct Session {
        Session() {}
    };

    template <typename T>
    static void PackA(const dense::Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        dense::PackPanels<Units, kRows, 1>(from, lanes, depth, to);
    }
    template <typename T>
    static void PackB(const dense::Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        dense::PackPanels<Units, kCols, 1>(from, lanes, depth, to);
    }

    static void Finish() { _mm_sfence(); }

    template <typename T>
    static void Tile(const std::byte* a, const std::byte* b, int64_t depth, T* c, int64_t c_stride,
                     dense::Write write) {
        const float* a_units = reinterpret_cast<const float*>(a);
        const float* b_units = reinterpret_cast<const float*>(b);
        const int64_t units = (depth + kUnitDepth - 1) / kUnitDepth;
        __m512 sums[kRows][2];
#pragma GCC unroll 14
        for (int i = 0; i < kRows; ++i) {
            sums[i][0] = sums[i][1] = _mm512_setzero_ps();
            __builtin_prefetch(c + i * c_stride, 1);
            __builtin_prefetch(c + i * c_stride + 16, 1);
        }
        for (int64_t u = 0; u < units; ++u, a_units += kRows, b_units += kCols) {
            const __m512 left = _mm512_load_ps(b_units), right = _mm512_load_ps(b_units + 16);
#pragma GCC unroll 14
            for (int i = 0; i < kRows; ++i) {
                const __m512 row = _mm512_set1_ps(a_units[i]);
                sums[i][0] = AddProduct(Units(), row, left, sums[i][0]);
                sums[i][1] = AddProduct(Units(), row, right, sums[i][1]);
            }
        }
#pragma GCC unroll 14
        for (int i = 0; i < kRows; ++i, c += c_stride) {
            if (write == dense::Write::kAdd) {
                sums[i][0] = _mm512_add_ps(Lanes::Load(c), sums[i][0]);
                sums[i][1] = _mm512_add_ps(Lanes::Load(c + 16), sums[i][1]);
            }
            if (write == dense::Write::kStream) {
                Lanes::StreamPair(c, sums[i][0], sums[i][1]);
            } else {
                Lanes::Store(c, sums[i][0]);
                Lanes::Store(c + 16, sums[i][1]);
            }
        }
    }
};

using FloatMicro = Micro<FloatUnits>;
using HalfMicro = Micro<PairUnits>;

}  // namespace weft::kernels::avx512
