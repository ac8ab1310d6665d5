#include "kernels/dense/dense.h"

#include "kernels/amx/dense.h"
#include "kernels/avx2/dense.h"
#include "kernels/avx512/dense.h"
#include "kernels/reference/dense.h"

namespace weft::kernels::dense {

const DenseKernels& DenseKernelsFor(CpuLevel level) {
    static const DenseKernels scalar{
        {reference::kGemm}, {reference::kCausal}, {reference::kRows}, CpuLevel::kReference};
    static const DenseKernels avx2{
        {avx2::kGemm}, {avx2::kCausal}, {avx2::kRows}, CpuLevel::kAvx2};
    static const DenseKernels avx512{
        {avx512::kGemm}, {avx512::kCausal}, {avx512::kRows}, CpuLevel::kAvx512};
    // Tiles multiply; rows are AVX-512's.
    static const DenseKernels amx{{amx::kGemm}, {amx::kCausal}, {avx512::kRows}, CpuLevel::kAmx};
    switch (level) {
        case CpuLevel::kReference: return scalar;
        case CpuLevel::kAvx2: return avx2;
        case CpuLevel::kAvx512: return avx512;
        case CpuLevel::kAmx: return amx;
    }
    return scalar;
}

}  // namespace weft::kernels::dense
