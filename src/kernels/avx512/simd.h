// Sixteen floats of AVX-512 under the names that vector_ops.h and tiled_attention.h use.
// Only for files of this folder: they alone are compiled for the instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace weft::kernels::avx512 {

struct Simd {
    using Float = __m512;
    static constexpr int kLanes = 16;
    static constexpr int kRegisters = 32;
    static constexpr bool kDots = true;  // multiplies BF16

    static __mmask16 First(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

    static Float Zero() { return _mm512_setzero_ps(); }
    static Float Set(float value) { return _mm512_set1_ps(value); }
    static Float Load(const float* from) { return _mm512_loadu_ps(from); }
    static void Store(float* to, Float x) { _mm512_storeu_ps(to, x); }
    // The first `count` < kLanes lanes; the others are zero, and stay untouched.
    static Float LoadFirst(const float* from, int64_t count) {
        return _mm512_maskz_loadu_ps(First(count), from);
    }
    static void StoreFirst(float* to, Float x, int64_t count) {
        _mm512_mask_storeu_ps(to, First(count), x);
    }
    // Lanes below `count` (0 to kLanes) of x, the others of y.
    static Float Select(int64_t count, Float x, Float y) {
        return _mm512_mask_blend_ps(First(count), y, x);
    }

    static Float LoadF16(const void* from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
    }
    static Float LoadBF16(const void* from) {
        const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(from));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static Float LoadI8(const void* from) {
        const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(from));
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    }
    static Float SpreadF16(const void* from) {  // one f16 in all lanes
        return Set(_mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(from))));
    }
    static void StoreF16(void* to, Float x) {
        _mm256_storeu_si256(static_cast<__m256i*>(to),
                            _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    // Rounded to nearest even; a NaN stays one.
    static void StoreBF16(void* to, Float x) {
        const __m512i bits = _mm512_castps_si512(x);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded =
            _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        const __m512i kept = _mm512_mask_blend_epi32(nan, rounded, quiet);
        _mm256_storeu_si256(static_cast<__m256i*>(to),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
    }

    // Pairs of BF16, one in each lane: of the elements of two rows of 16 (the second may be zeros),
    // and of neighbours of 32 floats, rounded to nearest even (denormals become zeros).
    static Float PairRows(const void* first, const void* second) {
        return _mm512_castsi512_ps(
            _mm512_or_si512(WidenU16(first), _mm512_slli_epi32(WidenU16(second), 16)));
    }
    static Float PairRow(const void* first) { return _mm512_castsi512_ps(WidenU16(first)); }
    static Float Pairs(Float first, Float second) {
        return reinterpret_cast<Float>(_mm512_cvtne2ps_pbh(second, first));
    }
    static Float FirstOfPairs(Float pairs) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
    }
    static Float SecondOfPairs(Float pairs) {
        return _mm512_castsi512_ps(
            _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-0x10000)));
    }
    // sum + the products of the lanes' pairs.
    static Float Dot(Float x, Float y, Float sum) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
    }
    static __m512i WidenU16(const void* from) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
    }

    static Float Add(Float x, Float y) { return _mm512_add_ps(x, y); }
    static Float Sub(Float x, Float y) { return _mm512_sub_ps(x, y); }
    static Float Mul(Float x, Float y) { return _mm512_mul_ps(x, y); }
    static Float Div(Float x, Float y) { return _mm512_div_ps(x, y); }
    static Float Fma(Float x, Float y, Float z) { return _mm512_fmadd_ps(x, y, z); }    // x*y + z
    static Float Fnma(Float x, Float y, Float z) { return _mm512_fnmadd_ps(x, y, z); }  // z - x*y
    static Float Max(Float x, Float y) { return _mm512_max_ps(x, y); }  // y where one is NaN
    static Float Min(Float x, Float y) { return _mm512_min_ps(x, y); }  // y where one is NaN
    // Lanes of x where a < b, of y elsewhere (and where one is NaN).
    static Float WhereLess(Float a, Float b, Float x, Float y) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
    }
    static Float Abs(Float x) { return _mm512_abs_ps(x); }
    static Float Round(Float x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
    // x * 2^n for whole n.
    static Float Scale(Float x, Float n) { return _mm512_scalef_ps(x, n); }
    static float Sum(Float x) { return _mm512_reduce_add_ps(x); }
    static float Largest(Float x) { return _mm512_reduce_max_ps(x); }

    // (a0, b0, a1, b1, ...) from and to (a0, a1, ...) and (b0, b1, ...): x holds the first kLanes.
    static void Unzip(Float x, Float y, Float* a, Float* b) {
        const __m512i even =
            _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        *a = _mm512_permutex2var_ps(x, even, y);
        *b = _mm512_permutex2var_ps(x, odd, y);
    }
    static void Zip(Float a, Float b, Float* x, Float* y) {
        const __m512i low =
            _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        *x = _mm512_permutex2var_ps(a, low, b);
        *y = _mm512_permutex2var_ps(a, high, b);
    }
};

}  // namespace weft::kernels::avx512
