// Scalar definitions of the dense kernels, of adapters, of layers with a state and of sparse
// attention, and access to matrix elements.
#pragma once

#include "kernels/adapt.h"
#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"
#include "kernels/recurrent.h"
#include "kernels/sparse.h"
#include "tensor/half.h"

namespace weft::kernels::reference {

extern const dense::GemmKernels kGemm;      // needs no scratch; parts divide the rows of C
extern const dense::CausalKernels kCausal;  // parts divide query heads (in the gradient: KV heads)
extern const dense::RowKernels kRows;
extern const AdaptKernels kAdapt;
extern const RecurrentKernels kRecurrent;
extern const SparseKernels kSparse;

// Reads a matrix element as float32, or writes it rounded to nearest even.
inline float Get(const dense::ConstMatrix& m, int64_t row, int64_t col) {
    switch (m.type) {
        case dense::Element::kF32: return m.Row<float>(row)[col];
        case dense::Element::kBf16: return BF16ToF32(m.Row<uint16_t>(row)[col]);
        case dense::Element::kF16: return F16ToF32(m.Row<dense::Half>(row)[col].bits);
    }
    return 0;
}
inline void Put(const dense::Matrix& m, int64_t row, int64_t col, float value) {
    switch (m.type) {
        case dense::Element::kF32: m.Row<float>(row)[col] = value; return;
        case dense::Element::kBf16: m.Row<uint16_t>(row)[col] = F32ToBF16(value); return;
        case dense::Element::kF16: m.Row<dense::Half>(row)[col] = {F32ToF16(value)}; return;
    }
}

}  // namespace weft::kernels::reference
