#include "kernels/vector/micro.h"

namespace weft::kernels::WEFT_SET {

void SetGemm(Kernels& table) {
    GemmByCompute<BlockedGemm<FloatMicro>, BlockedGemm<HalfMicro>>::Set(table);
}

}  // namespace weft::kernels::WEFT_SET
