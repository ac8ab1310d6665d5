#include "kernels/avx2/decoded.h"

#include <immintrin.h>

#include "kernels/avx2/blocks.h"
#include "kernels/avx2/store.h"
#include "kernels/decoded_matmul.h"

namespace weft::kernels::avx2 {
namespace {

struct Isa {
    static constexpr int kTile = 4;

    template <int T>
    static void Times(const DecodedUnit& unit, const ActivationBlock* x, int64_t x_stride,
                      float (*sums)[kStripRows]) {
        for (int side = 0; side < 2; ++side) {
            __m256 own[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) own[t] = _mm256_load_ps(sums[t] + 8 * side);
            TimesHalf<T>(unit, side, 0, x, x_stride, own);
            TimesHalf<T>(unit, side, 1, x, x_stride, own);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) _mm256_store_ps(sums[t] + 8 * side, own[t]);
        }
    }

    // The 8 rows of `side` times half h of the columns.
    template <int T>
    WEFT_INLINE void TimesHalf(const DecodedUnit& unit, int side, int h, const ActivationBlock* x,
                               int64_t x_stride, __m256 (&sums)[T]) {
        __m256i dots[T];
        Zero<T>(dots);
#pragma GCC unroll 4
        for (int j = 4 * h; j < 4 * h + 4; ++j) {
            const auto* q = reinterpret_cast<const __m256i*>(unit.q[j][8 * side]);
            const __m256i weights = _mm256_load_si256(q), size = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) {
                const __m256i quad = _mm256_sign_epi8(Quad(x[t * x_stride], 4 * j), weights);
                dots[t] = _mm256_add_epi32(dots[t], PairSums(_mm256_maddubs_epi16(size, quad)));
            }
        }
        const __m256 scale = _mm256_load_ps(unit.scale[h] + 8 * side);
        const __m256 offset = _mm256_load_ps(unit.offset[h] + 8 * side);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            sums[t] = AddScaled(scale, own, dots[t], sums[t]);
            const float sum = own.scale * static_cast<float>(own.from_32[h] / -32);
            sums[t] = _mm256_fmadd_ps(offset, _mm256_set1_ps(sum), sums[t]);
        }
    }

    static void StoreSums(const MatMulArgs& args, int64_t row, int64_t token, const float* sums) {
        avx2::StoreSums(args, row, token, _mm256_load_ps(sums));
        avx2::StoreSums(args, row + 8, token, _mm256_load_ps(sums + 8));
    }
    static void StoreWide(const MatMulArgs& args, int64_t row, int64_t token, const double* sums) {
        avx2::StoreWide(args, row, token, _mm256_load_pd(sums), _mm256_load_pd(sums + 4));
        avx2::StoreWide(args, row + 8, token, _mm256_load_pd(sums + 8), _mm256_load_pd(sums + 12));
    }
};

}  // namespace

void MatMulDecoded(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa>(args).Run(rows);
}

}  // namespace weft::kernels::avx2
