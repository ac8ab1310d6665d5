// Quantized weights of the types that have no kernel of their own here (kernels/decoded.h).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx2 {

// y of the weight's rows [rows.begin, rows.end) for every token. rows.begin: a strip's first row.
void MatMulDecoded(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::avx2
