#include "kernels/dense/dense.h"

#include "kernels/amx/gemm.h"
#include "kernels/avx2/gemm.h"
#include "kernels/avx512/gemm.h"
#include "kernels/reference/gemm.h"

namespace weft::kernels::dense {
namespace {

constexpr DenseKernels kReference = {
    .level = CpuLevel::kReference,
    .gemm_scratch_bytes = reference::GemmScratchBytes,
    .gemm = reference::Gemm,
};

constexpr DenseKernels kAvx2 = {
    .level = CpuLevel::kAvx2,
    .gemm_scratch_bytes = avx2::GemmScratchBytes,
    .gemm = avx2::Gemm,
};

constexpr DenseKernels kAvx512 = {
    .level = CpuLevel::kAvx512,
    .gemm_scratch_bytes = avx512::GemmScratchBytes,
    .gemm = avx512::Gemm,
};

constexpr DenseKernels kAmx = {
    .level = CpuLevel::kAmx,
    .gemm_scratch_bytes = amx::GemmScratchBytes,
    .gemm = amx::Gemm,
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
