// Products of quantized weights: K types of four bits and more.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockQ4_K>(const MatMulArgs& args, Range rows);
template void Strips<BlockQ5_K>(const MatMulArgs& args, Range rows);
template void Strips<BlockQ6_K>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
