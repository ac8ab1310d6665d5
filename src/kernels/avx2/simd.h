// AVX2 with FMA and F16C: lanes.h without changes.
#pragma once

#include "hw/cpu.h"
#include "kernels/avx2/lanes.h"

namespace weft::kernels::avx2 {

struct Simd : Lanes {
    static constexpr CpuLevel kLevel = CpuLevel::kAvx2;
};

}  // namespace weft::kernels::avx2
