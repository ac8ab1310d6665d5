#include "kernels/kernels.h"

#include "kernels/reference/ops.h"

namespace weft::kernels {

// One function a set makes its table (vector/table.cc, amx/table.cc).
namespace avx2 {
Kernels Table();
}
namespace avx512 {
Kernels Table();
}
namespace amx {
Kernels Table();
}
namespace neon {
Kernels Table();
}
namespace i8mm {
Kernels Table();
}

const Kernels& KernelsFor(CpuLevel level) {
    static const Kernels reference = reference::Table();
#if defined(__x86_64__)
    static const Kernels avx2 = avx2::Table(), avx512 = avx512::Table(), amx = amx::Table();
    if (level == CpuLevel::kAvx2) return avx2;
    if (level == CpuLevel::kAvx512) return avx512;
    if (level == CpuLevel::kAmx) return amx;
#elif defined(__aarch64__)
    static const Kernels neon = neon::Table(), i8mm = i8mm::Table();
    if (level == CpuLevel::kNeon) return neon;
    if (level == CpuLevel::kI8mm) return i8mm;
#endif
    return reference;
}

}  // namespace weft::kernels
