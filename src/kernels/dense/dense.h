// What training calls the table of kernels/kernels.h.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::dense {

using DenseKernels = Kernels;

inline const DenseKernels& DenseKernelsFor(CpuLevel level) {
    return KernelsFor(level);
}

}  // namespace weft::kernels::dense
