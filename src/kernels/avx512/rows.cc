#include "kernels/avx512/dense.h"
#include "kernels/avx512/lanes.h"
#include "kernels/dense/vector_rows.h"

namespace weft::kernels::avx512 {

const dense::RowKernels kRows = dense::VectorRows<Lanes>::kKernels;

}  // namespace weft::kernels::avx512
