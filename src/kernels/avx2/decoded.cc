#include "kernels/avx2/decoded.h"

#include <immintrin.h>

#include "kernels/avx2/grids.h"
#include "kernels/avx2/store.h"
#include "kernels/decoded_matmul.h"

namespace weft::kernels::avx2 {
namespace {

struct Isa {
    static constexpr int kTile = 4;

    template <int T, int kScales>
    static void Times(const DecodedUnit* units, const ActivationBlock* x, int64_t x_stride,
                      float (*sums)[kStripRows]) {
        for (int side = 0; side < 2; ++side) {
            __m256 own[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) own[t] = _mm256_load_ps(sums[t] + 8 * side);
#pragma GCC unroll 1
            for (int u = 0; u < kUnitsPerBlock; ++u) {
                TimesUnit<T, kScales>(units[u], side, x + u, x_stride, own);
            }
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) _mm256_store_ps(sums[t] + 8 * side, own[t]);
        }
    }

    // The 8 rows of `side`.
    template <int T, int kScales>
    WEFT_INLINE void TimesUnit(const DecodedUnit& unit, int side, const ActivationBlock* x,
                               int64_t x_stride, __m256 (&sums)[T]) {
#pragma GCC unroll 2
        for (int h = 0; h < kScales; ++h) {
            constexpr int kQuads = 8 / kScales;
            __m256i dots[T];
            Zero<T>(dots);
#pragma GCC unroll 8
            for (int j = kQuads * h; j < kQuads * h + kQuads; ++j) {
                const auto* q = reinterpret_cast<const __m256i*>(unit.q[j][8 * side]);
                DotSigned<T>(_mm256_load_si256(q), x, x_stride, 4 * j, dots);
            }
            AddAllScaled<T>(_mm256_load_ps(unit.scale[h] + 8 * side), x, x_stride, dots, sums);
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

}  // namespace weft::kernels::avx2
