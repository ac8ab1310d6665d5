// Products of quantized weights: three bits.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockQ3_K>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
