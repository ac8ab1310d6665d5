// Products of quantized weights: two bits.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockQ2_K>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
