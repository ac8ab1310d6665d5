#include "kernels/avx512/decoded.h"

#include <immintrin.h>

#include "kernels/avx512/grids.h"
#include "kernels/avx512/store.h"
#include "kernels/decoded_matmul.h"

namespace weft::kernels::avx512 {
namespace {

struct Isa {
    static constexpr int kTile = 12;

    template <int T, int kScales>
    static void Times(const DecodedUnit* units, const ActivationBlock* x, int64_t x_stride,
                      float (*sums)[kStripRows]) {
        __m512 own[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) own[t] = _mm512_load_ps(sums[t]);
#pragma GCC unroll 1
        for (int u = 0; u < kUnitsPerBlock; ++u) {
            if constexpr (kScales == 1) {
                TimesWhole<T>(units[u], x + u, x_stride, own);
            } else {
                TimesHalf<T>(units[u], 0, x + u, x_stride, own);
                TimesHalf<T>(units[u], 1, x + u, x_stride, own);
            }
        }
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) _mm512_store_ps(sums[t], own[t]);
    }

    template <int T>
    WEFT_INLINE void TimesWhole(const DecodedUnit& unit, const ActivationBlock* x, int64_t x_stride,
                                __m512 (&sums)[T]) {
        __m512i dots[T];
        StartAt<T>(
            x, x_stride, [](const ActivationBlock& b) { return b.from_128; }, dots);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            Dot<T>(_mm512_load_si512(unit.q[j]), x, x_stride, 4 * j, dots);
        }
        AddScaled<T>(_mm512_load_ps(unit.scale[0]), x, x_stride, dots, sums);
    }

    template <int T>
    WEFT_INLINE void TimesHalf(const DecodedUnit& unit, int h, const ActivationBlock* x,
                               int64_t x_stride, __m512 (&sums)[T]) {
        __m512i dots[T];
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
            dots[t] = _mm512_slli_epi32(_mm512_set1_epi32(x[t * x_stride].from_32[h]), 2);
        }
#pragma GCC unroll 4
        for (int j = 4 * h; j < 4 * h + 4; ++j) {
            Dot<T>(_mm512_load_si512(unit.q[j]), x, x_stride, 4 * j, dots);
        }
        AddScaled<T>(_mm512_load_ps(unit.scale[h]), x, x_stride, dots, sums);
    }

    static void StoreSums(const MatMulArgs& args, int64_t row, int64_t token, const float* sums) {
        avx512::StoreSums(args, row, token, _mm512_load_ps(sums));
    }
    static void StoreWide(const MatMulArgs& args, int64_t row, int64_t token, const double* sums) {
        avx512::StoreWide(args, row, token, _mm512_load_pd(sums), _mm512_load_pd(sums + 8));
    }
};

}  // namespace

template <>
void MatMulDecoded<DType::kIQ1_S>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ1_S>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ1_M>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ1_M>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ2_XXS>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ2_XXS>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ2_XS>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ2_XS>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ2_S>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ2_S>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ3_XXS>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ3_XXS>(args).Run(rows);
}
template <>
void MatMulDecoded<DType::kIQ3_S>(const MatMulArgs& args, Range rows) {
    DecodedMatMul<Isa, GridIQ3_S>(args).Run(rows);
}

}  // namespace weft::kernels::avx512
