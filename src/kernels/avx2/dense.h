// The dense kernels for AVX2, which dense/dense.h puts into its table: the templates of
// dense/blocked.h, dense/flash.h and dense/vector_rows.h.
#pragma once

#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"

namespace weft::kernels::avx2 {

extern const dense::GemmKernels kGemm;
extern const dense::CausalKernels kCausal;
extern const dense::RowKernels kRows;

}  // namespace weft::kernels::avx2
