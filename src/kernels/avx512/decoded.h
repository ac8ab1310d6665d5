// Matrix products of the code-book types (kernels/decoded.h).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx512 {

// kType: one of the types IQ1, IQ2 and IQ3.
template <DType kType>
void MatMulDecoded(const MatMulArgs& args, Range rows);

template <>
void MatMulDecoded<DType::kIQ1_S>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ1_M>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ2_XXS>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ2_XS>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ2_S>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ3_XXS>(const MatMulArgs& args, Range rows);
template <>
void MatMulDecoded<DType::kIQ3_S>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::avx512
