// Where the sums of a strip go: from the accumulators of one matmul to the rows of y.
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"

namespace weft::kernels::avx512 {

// The 16 sums of the strip at `row` for one token, and the bias; the last strip may be narrower.
[[gnu::always_inline]] static inline void StoreSums(const MatMulArgs& args, int64_t row,
                                                    int64_t token, __m512 sums) {
    const int64_t left = args.weight.rows - row;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
    if (args.bias != nullptr) {
        sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, args.bias + row));
    }
    if (args.wide != nullptr) {
        double* wide = args.wide + token * args.y_stride + row;
        const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sums));
        const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(sums, 1));
        _mm512_mask_storeu_pd(wide, static_cast<__mmask8>(mask), low);
        _mm512_mask_storeu_pd(wide + 8, static_cast<__mmask8>(mask >> 8), high);
        return;
    }
    _mm512_mask_storeu_ps(args.y + token * args.y_stride + row, mask, sums);
}

// The same for sums in float64: rounded once, or stored as they are.
[[gnu::always_inline]] static inline void StoreWide(const MatMulArgs& args, int64_t row,
                                                    int64_t token, __m512d low, __m512d high) {
    if (args.wide == nullptr) {
        const __m512 halves = _mm512_castps256_ps512(_mm512_cvtpd_ps(low));
        return StoreSums(args, row, token, _mm512_insertf32x8(halves, _mm512_cvtpd_ps(high), 1));
    }
    const int64_t left = args.weight.rows - row;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
    double* wide = args.wide + token * args.y_stride + row;
    _mm512_mask_storeu_pd(wide, static_cast<__mmask8>(mask), low);
    _mm512_mask_storeu_pd(wide + 8, static_cast<__mmask8>(mask >> 8), high);
}

}  // namespace weft::kernels::avx512
