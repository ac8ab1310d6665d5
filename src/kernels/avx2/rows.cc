#include "kernels/avx2/dense.h"
#include "kernels/avx2/lanes.h"
#include "kernels/dense/vector_rows.h"

namespace weft::kernels::avx2 {

const dense::RowKernels kRows = dense::VectorRows<Lanes>::kKernels;

}  // namespace weft::kernels::avx2
