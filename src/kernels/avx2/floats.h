// Float weights (F32, F16, BF16) times float32 activations; any number of columns.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx2 {

// y of the weight's rows [rows.begin, rows.end) for every token. rows.begin: a strip's first row.
void MatMulFloats(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::avx2
