// BF16 weights times BF16 activations, for any number of columns. Each sum adds blocks of 32
// columns one after another (tiles.h, TimesBF16).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::amx {

// Computes y for the weight's rows [rows.begin, rows.end) and all tokens. rows.begin: a strip's
// first row.
void MatMulBF16(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::amx
