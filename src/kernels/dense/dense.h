// The dense kernels, which training is made of: one table of functions for each instruction set,
// chosen as kernels/kernels.h does. Plain functions: no allocation, no lock, no state.
#pragma once

#include "hw/cpu.h"
#include "kernels/dense/attention.h"
#include "kernels/dense/gemm.h"
#include "kernels/dense/rows.h"

namespace weft::kernels::dense {

struct DenseKernels {
    CpuLevel level;
    int64_t (*gemm_scratch_bytes)(const GemmArgs& args);
    void (*gemm)(const GemmArgs& args, std::span<std::byte> scratch, int part, int parts);
    int64_t (*causal_scratch_bytes)(const CausalArgs& args);
    void (*causal)(const CausalArgs& args, std::span<std::byte> scratch, int part, int parts);
    int64_t (*causal_grad_scratch_bytes)(const CausalGradArgs& args);
    void (*causal_grad)(const CausalGradArgs& args, std::span<std::byte> scratch, int part,
                        int parts);
    void (*norm_grad_input)(const NormGradArgs& args, int part, int parts);
    void (*norm_grad_weight)(const NormGradArgs& args, int part, int parts);
    void (*glu_grad)(const reference::GluGradArgs& args, int part, int parts);
    void (*loss)(const LossArgs& args, int part, int parts);
    void (*adamw)(const AdamWArgs& args, int part, int parts);
};

// The table for `level`; a level that this build lacks gives the next lower one.
const DenseKernels& DenseKernelsFor(CpuLevel level);

}  // namespace weft::kernels::dense
