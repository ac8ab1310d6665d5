// Eight floats of AVX2 (with FMA and F16C) under the names that vector_ops.h and
// tiled_attention.h use. Only for files of this folder: they alone are compiled for the
// instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::avx2 {

struct Simd {
    using Float = __m256;
    static constexpr int kLanes = 8;
    static constexpr int kRegisters = 16;
    static constexpr bool kDots = false;

    // All ones in the first `count` lanes, 0 to kLanes.
    static __m256i First(int64_t count) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }

    static Float Zero() { return _mm256_setzero_ps(); }
    static Float Set(float value) { return _mm256_set1_ps(value); }
    static Float Load(const float* from) { return _mm256_loadu_ps(from); }
    static void Store(float* to, Float x) { _mm256_storeu_ps(to, x); }
    // The first `count` < kLanes lanes; the others are zero, and stay untouched.
    static Float LoadFirst(const float* from, int64_t count) {
        return _mm256_maskload_ps(from, First(count));
    }
    static void StoreFirst(float* to, Float x, int64_t count) {
        _mm256_maskstore_ps(to, First(count), x);
    }
    // Lanes below `count` (any number) of x, the others of y.
    static Float Select(int64_t count, Float x, Float y) {
        return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(First(count)));
    }

    static Float LoadF16(const void* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
    }
    static Float LoadBF16(const void* from) {
        const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(from));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
    static Float LoadI8(const void* from) {
        const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(from));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    }
    static Float SpreadF16(const void* from) {  // one f16 in all lanes
        return Set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(from))));
    }
    static void StoreF16(void* to, Float x) {
        _mm_storeu_si128(static_cast<__m128i*>(to),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    // Rounded to nearest even; a NaN stays one.
    static void StoreBF16(void* to, Float x) {
        const __m256i bits = _mm256_castps_si256(x);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded =
            _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
        _mm_storeu_si128(
            static_cast<__m128i*>(to),
            _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1)));
    }

    static Float Add(Float x, Float y) { return _mm256_add_ps(x, y); }
    static Float Sub(Float x, Float y) { return _mm256_sub_ps(x, y); }
    static Float Mul(Float x, Float y) { return _mm256_mul_ps(x, y); }
    static Float Div(Float x, Float y) { return _mm256_div_ps(x, y); }
    static Float Fma(Float x, Float y, Float z) { return _mm256_fmadd_ps(x, y, z); }    // x*y + z
    static Float Fnma(Float x, Float y, Float z) { return _mm256_fnmadd_ps(x, y, z); }  // z - x*y
    static Float Max(Float x, Float y) { return _mm256_max_ps(x, y); }  // y where one is NaN
    static Float Min(Float x, Float y) { return _mm256_min_ps(x, y); }  // y where one is NaN
    // Lanes of x where a < b, of y elsewhere (and where one is NaN).
    static Float WhereLess(Float a, Float b, Float x, Float y) {
        return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
    }
    static Float Abs(Float x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
    static Float Round(Float x) {
        return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
    // x * 2^n for whole n in [-252, 254]: two factors, since one would leave the exponent's range.
    static Float Scale(Float x, Float n) {
        const __m256i whole = _mm256_cvtps_epi32(n);
        const __m256i half = _mm256_srai_epi32(whole, 1);
        return Mul(Mul(x, PowerOf2(half)), PowerOf2(_mm256_sub_epi32(whole, half)));
    }
    static float Sum(Float x) {
        const __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
    }
    static float Largest(Float x) {
        const __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
        const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
    }

    // (a0, b0, a1, b1, ...) from and to (a0, a1, ...) and (b0, b1, ...): x holds the first kLanes.
    static void Unzip(Float x, Float y, Float* a, Float* b) {
        const Float low = _mm256_permute2f128_ps(x, y, 0x20);
        const Float high = _mm256_permute2f128_ps(x, y, 0x31);
        *a = _mm256_shuffle_ps(low, high, 0x88);
        *b = _mm256_shuffle_ps(low, high, 0xdd);
    }
    static void Zip(Float a, Float b, Float* x, Float* y) {
        const Float low = _mm256_unpacklo_ps(a, b);
        const Float high = _mm256_unpackhi_ps(a, b);
        *x = _mm256_permute2f128_ps(low, high, 0x20);
        *y = _mm256_permute2f128_ps(low, high, 0x31);
    }

  private:
    static Float PowerOf2(__m256i n) {
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
    }
};

}  // namespace weft::kernels::avx2
