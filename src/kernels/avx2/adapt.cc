#include "kernels/adapt_tiles.h"
#include "kernels/avx2/simd.h"

namespace weft::kernels::avx2 {
namespace {

struct Wide {
    using Double = __m256d;
    static Double Zero() { return _mm256_setzero_pd(); }
    static Double Set(double value) { return _mm256_set1_pd(value); }
    static Double Fma(Double x, Double y, Double z) { return _mm256_fmadd_pd(x, y, z); }
    static void Store(double* to, Double x) { _mm256_storeu_pd(to, x); }
    static Double LoadF32(const void* from) {
        return _mm256_cvtps_pd(_mm_loadu_ps(static_cast<const float*>(from)));
    }
    static Double LoadBF16(const void* from) {
        const __m128i halves = _mm_loadl_epi64(static_cast<const __m128i*>(from));
        const __m128i bits = _mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16);
        return _mm256_cvtps_pd(_mm_castsi128_ps(bits));
    }
};
using Tiles = AdaptTiles<Simd, Wide>;

}  // namespace

const AdaptKernels kAdapt{Tiles::Down, Tiles::Up};

}  // namespace weft::kernels::avx2
