// Where the sums of half a strip go: from the accumulators of one matmul to the rows of y.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "kernels/kernels.h"

namespace weft::kernels::avx2 {

// The 8 sums of the rows from `row` on for one token, and the bias; fewer at the matrix's end.
[[gnu::always_inline]] static inline void StoreSums(const MatMulArgs& args, int64_t row,
                                                    int64_t token, __m256 sums) {
    const auto left = static_cast<int>(std::clamp<int64_t>(args.weight.rows - row, 0, 8));
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes);
    if (left == 0) return;
    if (args.bias != nullptr) {
        sums = _mm256_add_ps(sums, _mm256_maskload_ps(args.bias + row, mask));
    }
    if (args.wide != nullptr) {
        alignas(32) float lanes_of[8];
        _mm256_store_ps(lanes_of, sums);
        for (int i = 0; i < left; ++i) args.wide[token * args.y_stride + row + i] = lanes_of[i];
        return;
    }
    _mm256_maskstore_ps(args.y + token * args.y_stride + row, mask, sums);
}

// The same for sums in float64: rounded once, or stored as they are.
[[gnu::always_inline]] static inline void StoreWide(const MatMulArgs& args, int64_t row,
                                                    int64_t token, __m256d low, __m256d high) {
    if (args.wide == nullptr) {
        const __m256 sums = _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
        return StoreSums(args, row, token, sums);
    }
    const auto left = static_cast<int>(std::clamp<int64_t>(args.weight.rows - row, 0, 8));
    alignas(32) double lanes[8];
    _mm256_store_pd(lanes, low);
    _mm256_store_pd(lanes + 4, high);
    std::copy(lanes, lanes + left, args.wide + token * args.y_stride + row);
}

}  // namespace weft::kernels::avx2
