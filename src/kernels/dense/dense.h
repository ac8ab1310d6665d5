// The dense kernels, which training is made of: one table of functions for each instruction set,
// chosen as kernels/kernels.h does. Plain functions: no allocation, no lock, no state.
#pragma once

#include "hw/cpu.h"
#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"

namespace weft::kernels::dense {

struct DenseKernels : GemmKernels, CausalKernels, RowKernels {
    CpuLevel level;
};

// The table for `level`; a level that this build lacks gives the next lower one.
const DenseKernels& DenseKernelsFor(CpuLevel level);

}  // namespace weft::kernels::dense
