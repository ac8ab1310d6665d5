// Products of quantized weights: five and eight bits.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockQ5_0>(const MatMulArgs& args, Range rows);
template void Strips<BlockQ5_1>(const MatMulArgs& args, Range rows);
template void Strips<BlockQ8_0>(const MatMulArgs& args, Range rows);
template void Strips<BlockW8>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
