// Products of quantized weights: ternary ones.
#include "kernels/vector/products.h"

namespace weft::kernels::WEFT_SET {

template void Strips<BlockTernary>(const MatMulArgs& args, Range rows);

}  // namespace weft::kernels::WEFT_SET
