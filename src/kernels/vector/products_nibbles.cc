// Products of quantized weights: four bits.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockQ4_0>(const MatMulArgs& args, Range rows);
template void Strips<BlockQ4_1>(const MatMulArgs& args, Range rows);
template void Strips<BlockIQ4_NL>(const MatMulArgs& args, Range rows);
template void Strips<BlockIQ4_XS>(const MatMulArgs& args, Range rows);
template void Strips<BlockMXFP4>(const MatMulArgs& args, Range rows);
template void Strips<BlockW4>(const MatMulArgs& args, Range rows);
template void Strips<BlockNVFP4>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
