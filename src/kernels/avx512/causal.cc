#include "kernels/avx512/dense.h"
#include "kernels/avx512/micro.h"
#include "kernels/dense/flash.h"

namespace weft::kernels::avx512 {

const dense::CausalKernels kCausal = dense::CausalByCompute<
    dense::Flash<FloatMicro, Lanes>, dense::Flash<HalfMicro, Lanes>>::kKernels;

}  // namespace weft::kernels::avx512
