// BF16 weights times BF16 activations, for any number of columns. Blocks of 32 columns are added to
// a sum one after another (tiles.h, TimesBF16).
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::amx {

// Computes y for the weight's rows [rows.begin, rows.end) and all tokens. rows.begin must be a
// multiple of kStripRows (16 rows, packed together: weight_tiles.h).
void MatMulBF16(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::amx
