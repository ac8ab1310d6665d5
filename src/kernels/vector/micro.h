// The micro-kernels of dense products (blocked.h): one for float32, and one for bfloat16. On
// instruction sets that multiply bfloat16, the one for bfloat16 uses pairs of bfloat16
// (../avx512/units.h). On other sets, it uses float32 values that are rounded to bfloat16.
#pragma once

#include <type_traits>

#include "kernels/vector/blocked.h"
#if defined(WEFT_OWN_PRODUCTS)
#include WEFT_SET_FILE(units.h)
#endif

namespace weft::kernels::WEFT_SET {

// A unit is a float, optionally rounded to bfloat16.
template <bool kRounded, typename S = Simd>
struct FloatUnits {
    using Vec = Float;
    static constexpr int64_t kLanes = Simd::kLanes, kDepth = 1;
    static Vec Zero() { return Simd::Zero(); }
    static void Store(std::byte* to, Vec x) { Simd::Store(reinterpret_cast<float*>(to), x); }
    // Stores the first `count` units, or the whole vector.
    static void StoreFirst(std::byte* to, Vec x, int64_t count) {
        Simd::StoreUpTo(reinterpret_cast<float*>(to), x, count);
    }
    // Loads `count` contiguous units of one lane.
    template <typename T>
    static Vec LoadAlong(const T* from, int64_t count) {
        const Vec x = Simd::LoadUpTo(from, count);
        if constexpr (kRounded && !std::is_same_v<T, uint16_t>) {
            return S::RoundBF16(x);
        } else {
            return x;
        }
    }
    // Loads one unit of each of `lanes` contiguous lanes; zeros if `left` is 0.
    template <typename T>
    static Vec LoadAcross(const T* from, int64_t /*stride*/, int64_t left, int64_t lanes) {
        return left > 0 ? LoadAlong(from, lanes) : Zero();
    }
    static void Transpose(Vec* rows) { Simd::Transpose(rows); }
    static Float AddProduct(Float a, Float b, Float sum) { return Simd::Fma(a, b, sum); }
};

// A tile has 14 x 32 sums, which fill 28 of 32 registers, or 6 x 16 sums, which fill 12 of 16
// registers.
template <typename Units>
struct Micro {
    static constexpr bool kWide = Simd::kRegisters == 32;
    static constexpr int64_t kRows = kWide ? 14 : 6, kCols = 2 * Simd::kLanes;
    static constexpr int64_t kUnitDepth = Units::kDepth, kStep = kUnitDepth;
    static constexpr int64_t kMostDepth = 320 * kUnitDepth;
    static constexpr int64_t kWholeDepth = kWide ? 640 : kMostDepth, kTileDepth = kWholeDepth;
    static constexpr int64_t kSlackBytes = 64;
    // A narrow tile has so few products per unit that the loop's own instructions cost 3 to 8 %.
    static constexpr int64_t kUnrolled = kWide ? 1 : 4;
    static constexpr bool kHoldsB = !kWide;
    struct Session {
        Session() {}
    };

    template <typename T>
    static void PackA(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        PackPanels<Units, kRows, 1>(from, lanes, depth, to);
    }
    template <typename T>
    static void PackB(const Operand<T>& from, int64_t lanes, int64_t depth, std::byte* to) {
        PackPanels<Units, kCols, 1>(from, lanes, depth, to);
    }

    static void Finish() { Simd::FinishStreams(); }

    // Adds the products of one unit of each lane to the sums of a tile.
    [[gnu::always_inline]] static void AddUnit(const float* a, const float* b,
                                               Float (&sums)[kRows][2]) {
        const Float left = Simd::Load(b), right = Simd::Load(b + Simd::kLanes);
#pragma GCC unroll 14
        for (int i = 0; i < kRows; ++i) {
            const Float row = Simd::Set(a[i]);
            sums[i][0] = Units::AddProduct(row, left, sums[i][0]);
            sums[i][1] = Units::AddProduct(row, right, sums[i][1]);
        }
    }

    // Rounds a tile of floats to C, or adds it. It is a function of its own because the constants
    // of the rounding would displace sums from the registers of the loop over k.
    template <typename T>
    [[gnu::noinline]] static void PutTile(const float* tile, T* c, int64_t c_stride, bool add) {
        for (int64_t i = 0; i < kRows; ++i, tile += kCols, c += c_stride) {
            for (int64_t j = 0; j < kCols; j += Simd::kLanes) {
                const Float sums = Simd::Load(tile + j);
                Simd::Store(c + j, add ? Simd::Add(Simd::Load(c + j), sums) : sums);
            }
        }
    }

    template <typename T>
    static void Tile(const std::byte* a, const std::byte* b, int64_t depth, T* c, int64_t c_stride,
                     Write write) {
        constexpr int64_t kLanes = Simd::kLanes;
        if constexpr (!kWide && !std::is_same_v<T, float>) {
            alignas(64) float tile[kRows * kCols];
            Tile(a, b, depth, tile, kCols, Write::kSet);
            return PutTile(tile, c, c_stride, write == Write::kAdd);
        }
        const float* a_units = reinterpret_cast<const float*>(a);
        const float* b_units = reinterpret_cast<const float*>(b);
        const int64_t units = (depth + kUnitDepth - 1) / kUnitDepth;
        Float sums[kRows][2];
#pragma GCC unroll 14
        for (int i = 0; i < kRows; ++i) {
            sums[i][0] = sums[i][1] = Simd::Zero();
            __builtin_prefetch(c + i * c_stride, 1);
            if (kWide) __builtin_prefetch(c + i * c_stride + kLanes, 1);
        }
        int64_t u = 0;
        for (; u + kUnrolled <= units; u += kUnrolled) {
#pragma GCC unroll 4
            for (int64_t v = 0; v < kUnrolled; ++v) {
                AddUnit(a_units, b_units, sums);
                a_units += kRows;
                b_units += kCols;
            }
        }
        for (; u < units; ++u, a_units += kRows, b_units += kCols) AddUnit(a_units, b_units, sums);
#pragma GCC unroll 14
        for (int i = 0; i < kRows; ++i, c += c_stride) {
            if (write == Write::kAdd) {
                sums[i][0] = Simd::Add(Simd::Load(c), sums[i][0]);
                sums[i][1] = Simd::Add(Simd::Load(c + kLanes), sums[i][1]);
            }
            if (write == Write::kStream) {
                Simd::StreamPair(c, sums[i][0], sums[i][1]);
            } else {
                Simd::Store(c, sums[i][0]);
                Simd::Store(c + kLanes, sums[i][1]);
            }
        }
    }
};

using FloatMicro = Micro<FloatUnits<false>>;
#if defined(WEFT_OWN_PRODUCTS)
using HalfMicro = Micro<PairUnits>;
#else
using HalfMicro = Micro<FloatUnits<true>>;
#endif

}  // namespace weft::kernels::WEFT_SET
