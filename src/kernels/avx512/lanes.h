// Sixteen floats of AVX-512 that come from and go to float32, bfloat16 or float16: what the dense
// kernels' rows and tiles are made of. Only for files of this folder (and amx/), as simd.h.
#pragma once

#include "kernels/avx512/simd.h"
#include "kernels/dense/element.h"

namespace weft::kernels::avx512 {

struct Lanes : Simd {
    using Half = dense::Half;
    using Simd::Load, Simd::Store, Simd::LoadFirst, Simd::StoreFirst;
    static Float Load(const uint16_t* from) { return LoadBF16(from); }
    static Float LoadFirst(const uint16_t* from, int64_t count) {
        const __m256i halves = _mm256_maskz_loadu_epi16(First(count), from);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
    static void Store(uint16_t* to, Float x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Halves(x));
    }
    static void StoreFirst(uint16_t* to, Float x, int64_t count) {
        _mm256_mask_storeu_epi16(to, First(count), Halves(x));
    }
    static Float Load(const Half* from) { return LoadF16(from); }
    static Float LoadFirst(const Half* from, int64_t count) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(count), from));
    }
    static void Store(Half* to, Float x) { StoreF16(to, x); }
    static void StoreFirst(Half* to, Float x, int64_t count) {
        _mm256_mask_storeu_epi16(to, First(count), Rounded(x));
    }
    // Two vectors past the caches, to whole lines of 64 bytes.
    static void StreamPair(float* to, Float x, Float y) {
        _mm512_stream_ps(to, x);
        _mm512_stream_ps(to + kLanes, y);
    }
    static void StreamPair(uint16_t* to, Float x, Float y) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                            reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y, x)));
    }
    static void StreamPair(Half* to, Float x, Float y) {
        const __m512i low = _mm512_castsi256_si512(Rounded(x));
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                            _mm512_inserti64x4(low, Rounded(y), 1));
    }
    static Float Sqrt(Float x) { return _mm512_sqrt_ps(x); }

  private:
    static __m256i Halves(Float x) {  // denormals become zeros
        return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
    }
    static __m256i Rounded(Float x) {  // to float16
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
};

}  // namespace weft::kernels::avx512
