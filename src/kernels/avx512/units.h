// Units of dense products (vector/pack.h) that are pairs of bfloat16, for the instruction
// vdpbf16ps. Included only in files that are compiled for AVX-512.
#pragma once

#include "kernels/vector/set.h"

namespace weft::kernels::avx512 {

struct PairUnits {
    using Vec = Float;
    static constexpr int64_t kLanes = 16, kDepth = 2;
    static Vec Zero() { return Simd::Zero(); }
    static void Store(std::byte* to, Vec x) { _mm512_storeu_ps(to, x); }
    static void StoreFirst(std::byte* to, Vec x, int64_t count) {
        Simd::StoreUpTo(reinterpret_cast<float*>(to), x, count);
    }
    static void Transpose(Vec* rows) { Simd::Transpose(rows); }
    static Float AddProduct(Float a, Float b, Float sum) { return Simd::Dot(a, b, sum); }
    static Vec LoadAlong(const float* from, int64_t count) {
        const __m512 low = _mm512_maskz_loadu_ps(Simd::FirstUpTo(count), from);
        const __m512 high = _mm512_maskz_loadu_ps(Simd::FirstUpTo(count - 16), from + 16);
        return Simd::Pairs(low, high);
    }
    static Vec LoadAlong(const uint16_t* from, int64_t count) {
        const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
        return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from));
    }
    static Vec LoadAlong(const Half* from, int64_t count) {
        const __m512 low = Widened(from, Simd::FirstUpTo(count));
        const __m512 high = Widened(from + 16, Simd::FirstUpTo(count - 16));
        return Simd::Pairs(low, high);
    }
    template <typename T>
    static Vec LoadAcross(const T* from, int64_t stride, int64_t left, int64_t lanes) {
        if (left <= 0) return Zero();
        return Interleaved(from, left == 1 ? nullptr : from + stride, Simd::FirstUpTo(lanes));
    }

  private:
    static __m512 Widened(const float* from, __mmask16 mask) {
        return _mm512_maskz_loadu_ps(mask, from);
    }
    static __m512 Widened(const Half* from, __mmask16 mask) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
    }
    // Pairs sixteen values of `even` with sixteen of `odd` (null: zeros).
    template <typename T>
    static Vec Interleaved(const T* even, const T* odd, __mmask16 mask) {
        const __m512 low = Widened(even, mask);
        const __m512 high = odd == nullptr ? _mm512_setzero_ps() : Widened(odd, mask);
        return Zip(_mm512_castps_si512(Simd::Pairs(low, high)));
    }
    static Vec Interleaved(const uint16_t* even, const uint16_t* odd, __mmask16 mask) {
        const __m256i low = _mm256_maskz_loadu_epi16(mask, even);
        const __m256i high =
            odd == nullptr ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, odd);
        return Zip(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
    static Vec Zip(__m512i halves) {
        const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i order = _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
        const __m512i apart = _mm512_or_si512(order, _mm512_set1_epi32(16 << 16));
        return _mm512_castsi512_ps(_mm512_permutexvar_epi16(apart, halves));
    }
};

}  // namespace weft::kernels::avx512
