#include "kernels/dense/dense.h"

#include "kernels/amx/causal.h"
#include "kernels/amx/gemm.h"
#include "kernels/avx2/causal.h"
#include "kernels/avx2/gemm.h"
#include "kernels/avx2/rows.h"
#include "kernels/avx512/causal.h"
#include "kernels/avx512/gemm.h"
#include "kernels/avx512/rows.h"
#include "kernels/reference/causal.h"
#include "kernels/reference/gemm.h"
#include "kernels/reference/rows.h"

namespace weft::kernels::dense {
namespace {

constexpr DenseKernels kReference = {
    .level = CpuLevel::kReference,
    .gemm_scratch_bytes = reference::GemmScratchBytes,
    .gemm = reference::Gemm,
    .causal_scratch_bytes = reference::CausalScratchBytes,
    .causal = reference::Causal,
    .causal_grad_scratch_bytes = reference::CausalGradScratchBytes,
    .causal_grad = reference::CausalGrad,
    .norm_grad_input = reference::NormGradInput,
    .norm_grad_weight = reference::NormGradWeight,
    .glu_grad = reference::GluGrad,
    .loss = reference::Loss,
    .adamw = reference::AdamW,
};

constexpr DenseKernels kAvx2 = {
    .level = CpuLevel::kAvx2,
    .gemm_scratch_bytes = avx2::GemmScratchBytes,
    .gemm = avx2::Gemm,
    .causal_scratch_bytes = avx2::CausalScratchBytes,
    .causal = avx2::Causal,
    .causal_grad_scratch_bytes = avx2::CausalGradScratchBytes,
    .causal_grad = avx2::CausalGrad,
    .norm_grad_input = avx2::NormGradInput,
    .norm_grad_weight = avx2::NormGradWeight,
    .glu_grad = avx2::GluGrad,
    .loss = avx2::Loss,
    .adamw = avx2::AdamW,
};

constexpr DenseKernels kAvx512 = {
    .level = CpuLevel::kAvx512,
    .gemm_scratch_bytes = avx512::GemmScratchBytes,
    .gemm = avx512::Gemm,
    .causal_scratch_bytes = avx512::CausalScratchBytes,
    .causal = avx512::Causal,
    .causal_grad_scratch_bytes = avx512::CausalGradScratchBytes,
    .causal_grad = avx512::CausalGrad,
    .norm_grad_input = avx512::NormGradInput,
    .norm_grad_weight = avx512::NormGradWeight,
    .glu_grad = avx512::GluGrad,
    .loss = avx512::Loss,
    .adamw = avx512::AdamW,
};

constexpr DenseKernels kAmx = {
    .level = CpuLevel::kAmx,
    .gemm_scratch_bytes = amx::GemmScratchBytes,
    .gemm = amx::Gemm,
    .causal_scratch_bytes = amx::CausalScratchBytes,
    .causal = amx::Causal,
    .causal_grad_scratch_bytes = amx::CausalGradScratchBytes,
    .causal_grad = amx::CausalGrad,
    .norm_grad_input = avx512::NormGradInput,
    .norm_grad_weight = avx512::NormGradWeight,
    .glu_grad = avx512::GluGrad,
    .loss = avx512::Loss,
    .adamw = avx512::AdamW,
};

}  // namespace

const DenseKernels& DenseKernelsFor(CpuLevel level) {
    switch (level) {
        case CpuLevel::kReference: return kReference;
        case CpuLevel::kAvx2: return kAvx2;
        case CpuLevel::kAvx512: return kAvx512;
        case CpuLevel::kAmx: return kAmx;
    }
    return kReference;
}

}  // namespace weft::kernels::dense
