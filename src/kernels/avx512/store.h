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
    _mm512_mask_storeu_ps(args.y + token * args.y_stride + row, mask, sums);
}

}  // namespace weft::kernels::avx512
