#include "kernels/adapt_tiles.h"
#include "kernels/avx512/simd.h"

namespace weft::kernels::avx512 {
namespace {

struct Wide {
    using Double = __m512d;
    static Double Zero() { return _mm512_setzero_pd(); }
    static Double Set(double value) { return _mm512_set1_pd(value); }
    static Double Fma(Double x, Double y, Double z) { return _mm512_fmadd_pd(x, y, z); }
    static void Store(double* to, Double x) { _mm512_storeu_pd(to, x); }
    static Double LoadF32(const void* from) {
        return _mm512_cvtps_pd(_mm256_loadu_ps(static_cast<const float*>(from)));
    }
    static Double LoadBF16(const void* from) {
        const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(from));
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
        return _mm512_cvtps_pd(_mm256_castsi256_ps(bits));
    }
};
using Tiles = AdaptTiles<Simd, Wide>;

}  // namespace

const AdaptKernels kAdapt{Tiles::Down, Tiles::Up};

}  // namespace weft::kernels::avx512
