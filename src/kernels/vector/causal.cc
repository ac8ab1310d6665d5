#include "kernels/vector/flash.h"
#include "kernels/vector/micro.h"

namespace weft::kernels::WEFT_SET {

void SetCausal(Kernels& table) {
    CausalByCompute<Flash<FloatMicro>, Flash<HalfMicro>>::Set(table);
}

}  // namespace weft::kernels::WEFT_SET
