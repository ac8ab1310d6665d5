#include "kernels/avx2/dense.h"
#include "kernels/avx2/micro.h"

namespace weft::kernels::avx2 {

const dense::GemmKernels kGemm = dense::GemmByCompute<dense::BlockedGemm<FloatMicro>,
                                                      dense::BlockedGemm<HalfMicro>>::kKernels;

}  // namespace weft::kernels::avx2
