#include "kernels/avx512/decoded.h"

#include <immintrin.h>

#include "kernels/avx512/blocks.h"
#include "kernels/avx512/store.h"
#include "kernels/decoded_matmul.h"

namespace weft::kernels::avx512 {
namespace {

struct Isa {
    static constexpr int kTile = 12;

    template <int T>
    static void Times(const DecodedUnit& unit, const ActivationBlock* x, int64_t x_stride,
                      float (*sums)[kStripRows]) {
        __m512 own[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) own[t] = _mm512_load_ps(sums[t]);
        TimesHalf<T>(unit, 0, x, x_stride, own);
        TimesHalf<T>(unit, 1, x, x_stride, own);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) _mm512_store_ps(sums[t], own[t]);
    }

    template <int T>
    WEFT_INLINE void TimesHalf(const DecodedUnit& unit, int h, const ActivationBlock* x,
                               int64_t x_stride, __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt<T>(  // int8 + 128 is the byte with its top bit flipped
            x, x_stride, [h](const ActivationBlock& b) { return 4 * b.from_32[h]; }, dots);
#pragma GCC unroll 4
        for (int j = 4 * h; j < 4 * h + 4; ++j) {
            const __m512i q = _mm512_load_si512(unit.q[j]);
            Dot<T>(_mm512_xor_si512(q, _mm512_set1_epi8(-128)), x, x_stride, 4 * j, dots);
        }
        AddScaled<T>(_mm512_load_ps(unit.scale[h]), x, x_stride, dots, sums);
        const __m512 offset = _mm512_load_ps(unit.offset[h]);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            const ActivationBlock& own = x[t * x_stride];
            const float sum = own.scale * static_cast<float>(own.from_32[h] / -32);
            sums[t] = _mm512_fmadd_ps(offset, _mm512_set1_ps(sum), sums[t]);
        }
    }

    static void StoreSums(const MatMulArgs& args, int64_t row, int64_t token, const float* sums) {
        avx512::StoreSums(args, row, token, _mm512_load_ps(sums));
    }
    static void StoreWide(const MatMulArgs& args, int64_t row, int64_t token, const double* sums) {
        avx512::StoreWide(args, row, token, _mm512_load_pd(sums), _mm512_load_pd(sums + 8));
    }
};

}  // namespace

void MatMulDecoded(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa>(args).Run(rows);
}

}  // namespace weft::kernels::avx512
