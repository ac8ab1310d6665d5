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
    _mm256_maskstore_ps(args.y + token * args.y_stride + row, mask, sums);
}

}  // namespace weft::kernels::avx2
