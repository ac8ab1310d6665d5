// NEON with dot products (Armv8.2): lanes.h without changes.
#pragma once

#include "hw/cpu.h"
#include "kernels/neon/lanes.h"

namespace weft::kernels::neon {

struct Simd : Lanes {
    static constexpr CpuLevel kLevel = CpuLevel::kNeon;
    static constexpr bool kMatrices = false;
};

}  // namespace weft::kernels::neon
