#include "kernels/avx2/dense.h"
#include "kernels/avx2/micro.h"
#include "kernels/dense/flash.h"

namespace weft::kernels::avx2 {

const dense::CausalKernels kCausal = dense::CausalByCompute<
    dense::Flash<FloatMicro, Lanes>, dense::Flash<HalfMicro, Lanes>>::kKernels;

}  // namespace weft::kernels::avx2
