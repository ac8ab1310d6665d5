// The scalar definitions of the dense kernels, which dense/dense.h puts into its table.
#pragma once

#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"
#include "tensor/half.h"

namespace weft::kernels::reference {

extern const dense::GemmKernels kGemm;      // needs no scratch; parts share out the rows of C
extern const dense::CausalKernels kCausal;  // parts share out heads (of the gradient: KV heads)
extern const dense::RowKernels kRows;

// An element of a matrix as float32, and back: rounded to nearest even.
inline float Get(const dense::ConstMatrix& m, int64_t row, int64_t col) {
    return m.type == dense::Element::kF32 ? m.Row<float>(row)[col]
                                          : BF16ToF32(m.Row<uint16_t>(row)[col]);
}
inline void Put(const dense::Matrix& m, int64_t row, int64_t col, float value) {
    if (m.type == dense::Element::kF32) {
        m.Row<float>(row)[col] = value;
    } else {
        m.Row<uint16_t>(row)[col] = F32ToBF16(value);
    }
}

}  // namespace weft::kernels::reference
