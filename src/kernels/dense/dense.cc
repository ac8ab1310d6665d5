#include "kernels/dense/dense.h"

#include "kernels/amx/causal.h"
#include "kernels/amx/gemm.h"
#include "kernels/avx2/causal.h"
#include "kernels/avx2/gemm.h"
#include "kernels/avx512/causal.h"
#include "kernels/avx512/gemm.h"
#include "kernels/reference/causal.h"
#include "kernels/reference/gemm.h"

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
};

constexpr DenseKernels kAvx2 = {
    .level = CpuLevel::kAvx2,
    .gemm_scratch_bytes = avx2::GemmScratchBytes,
    .gemm = avx2::Gemm,
    .causal_scratch_bytes = avx2::CausalScratchBytes,
    .causal = avx2::Causal,
    .causal_grad_scratch_bytes = avx2::CausalGradScratchBytes,
    .causal_grad = avx2::CausalGrad,
};

constexpr DenseKernels kAvx512 = {
    .level = CpuLevel::kAvx512,
    .gemm_scratch_bytes = avx512::GemmScratchBytes,
    .gemm = avx512::Gemm,
    .causal_scratch_bytes = avx512::CausalScratchBytes,
    .causal = avx512::Causal,
    .causal_grad_scratch_bytes = avx512::CausalGradScratchBytes,
    .causal_grad = avx512::CausalGrad,
};

constexpr DenseKernels kAmx = {
    .level = CpuLevel::kAmx,
    .gemm_scratch_bytes = amx::GemmScratchBytes,
    .gemm = amx::Gemm,
    .causal_scratch_bytes = amx::CausalScratchBytes,
    .causal = amx::Causal,
    .causal_grad_scratch_bytes = amx::CausalGradScratchBytes,
    .causal_grad = amx::CausalGrad,
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
