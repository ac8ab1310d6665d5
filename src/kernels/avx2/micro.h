// The micro-kernels of dense products for AVX2 and FMA (dense/blocked.h): float32, and float32
// rounded to bfloat16. Only for files that are compiled for the instruction set.
#pragma once

#include <immintrin.h>

#include "kernels/avx2/lanes.h"
#include "kernels/dense/blocked.h"

namespace weft::kernels::avx2 {

// A unit is a float; what rounds it on the way is Round.
template <typename Round>
struct UnitsOf {
    using Vec = __m256;
    static constexpr int64_t kLanes = 8, kDepth = 1;
    static Vec Zero() { return _mm256_setzero_ps(); }
    static void Store(std::byte* to, Vec x) { _mm256_storeu_ps(reinterpret_cast<float*>(to), x); }
    // The first `count` units, or all that there are.
    static void StoreFirst(std::byte* to, Vec x, int64_t count) {
        if (count >= kLanes) return Store(to, x);
        Simd::StoreFirst(reinterpret_cast<float*>(to), x, count);
    }

    static Vec LoadAlong(const float* from, int64_t count) {
        return Round::Floats(count >= kLanes ? Simd::Load(from) : Simd::LoadFirst(from, count));
    }
    static Vec LoadAlong(const uint16_t* from, int64_t count) {
        return count >= kLanes ? Lanes::Load(from) : Lanes::LoadFirst(from, count);
    }
    static Vec LoadAlong(const dense::Half* from, int64_t count) {
        return Round::Floats(count >= kLanes ? Lanes::Load(from) : Lanes::LoadFirst(from, count));
    }
    template <typename T>
    static Vec LoadAcross(const T* from, int64_t /*stride*/, int64_t left, int64_t lanes) {
        return left > 0 ? LoadAlong(from, lanes) : Zero();
    }

    // rows[i][j] becomes rows[j][i]: pairs, then fours, then halves.
    static void Transpose(Vec* rows) {
        Vec x[8];
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            x[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            x[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            rows[i] = _mm256_shuffle_ps(x[i], x[i + 2], 0x44);
            rows[i + 1] = _mm256_shuffle_ps(x[i], x[i + 2], 0xee);
            rows[i + 2] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0x44);
            rows[i + 3] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const Vec low = rows[i], high = rows[4 + i];
            rows[i] = _mm256_permute2f128_ps(low, high, 0x20);
            rows[4 + i] = _mm256_permute2f128_ps(low, high, 0x31);
        }
    }
};

struct NotRounded {
    static __m256 Floats(__m256 x) { return x; }
};
struct RoundedToBf16 {
    static __m256 Floats(__m256 x) {
        uint16_t halves[8];
        Simd::StoreBF16(halves, x);
        return Simd::LoadBF16(halves);
    }
};
using FloatUnits = UnitsOf<NotRounded>;
using RoundedUnits = UnitsOf<RoundedToBf16>;

// 6 x 16 sums fill 12 of the 16 registers.
template <typename Units>
struct Micro {
    using Vectors = Lanes;
    static constexpr int64_t kRows = 6, kCols = 16;
    static constexpr int64_t kUnitDepth = 1, kStep = 1;
    static constexpr int64_t kMostDepth = 320;
    static constexpr int64_t kWholeDepth = kMostDepth, kTileDepth = kMostDepth;
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

    static void Finish() {}

    template <typename T>
    static void Tile(const std::byte* a, const std::byte* b, int64_t depth, T* c, int64_t c_stride,
                     dense::Write write) {
        const float* a_units = reinterpret_cast<const float*>(a);
        const float* b_units = reinterpret_cast<const float*>(b);
        __m256 sums[kRows][2];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
            sums[i][0] = sums[i][1] = _mm256_setzero_ps();
            __builtin_prefetch(c + i * c_stride, 1);
        }
        for (int64_t u = 0; u < depth; ++u, a_units += kRows, b_units += kCols) {
            const __m256 left = _mm256_load_ps(b_units), right = _mm256_load_ps(b_units + 8);
#pragma GCC unroll 6
            for (int i = 0; i < kRows; ++i) {
                const __m256 row = _mm256_broadcast_ss(a_units + i);
                sums[i][0] = _mm256_fmadd_ps(row, left, sums[i][0]);
                sums[i][1] = _mm256_fmadd_ps(row, right, sums[i][1]);
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i, c += c_stride) {
            if (write == dense::Write::kAdd) {
                sums[i][0] = _mm256_add_ps(Lanes::Load(c), sums[i][0]);
                sums[i][1] = _mm256_add_ps(Lanes::Load(c + 8), sums[i][1]);
            }
            Lanes::Store(c, sums[i][0]);
            Lanes::Store(c + 8, sums[i][1]);
        }
    }
};

using FloatMicro = Micro<FloatUnits>;
using HalfMicro = Micro<RoundedUnits>;

}  // namespace weft::kernels::avx2
