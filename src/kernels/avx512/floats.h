// F32 and F16 weights times float32 activations, BF16 weights times BF16 ones; any number of
// columns.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx512 {

// y of the weight's rows [rows.begin, rows.end) for every token. rows.begin: a strip's first row.
void MatMulFloats(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::avx512
