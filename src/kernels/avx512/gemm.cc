#include "kernels/avx512/dense.h"
#include "kernels/avx512/micro.h"

namespace weft::kernels::avx512 {

const dense::GemmKernels kGemm = dense::GemmByCompute<dense::BlockedGemm<FloatMicro>,
                                                      dense::BlockedGemm<HalfMicro>>::kKernels;

}  // namespace weft::kernels::avx512
