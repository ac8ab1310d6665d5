#include "kernels/kernels.h"

#include "kernels/reference/ops.h"

namespace weft::kernels {

// Each set has one function that makes its table (vector/table.cc, amx/table.cc, avxvnni/table.cc).
namespace avx2 {
Kernels Table();
}
namespace avxvnni {
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

bool IsBuilt(CpuLevel level) {
#if defined(__x86_64__)
    if (level >= CpuLevel::kAvx2 && level <= CpuLevel::kAmx) return true;
#elif defined(__aarch64__)
    if (level == CpuLevel::kNeon || level == CpuLevel::kI8mm) return true;
#endif
    return level == CpuLevel::kReference;
}

// Each table is made at its first use: the function that makes it is compiled for its set and must
// not run on other processors.
const Kernels& KernelsFor(CpuLevel level) {
#if defined(__x86_64__)
    if (level == CpuLevel::kAvx2) {
        static const Kernels table = avx2::Table();
        return table;
    }
    if (level == CpuLevel::kAvxVnni) {
        static const Kernels table = avxvnni::Table();
        return table;
    }
    if (level == CpuLevel::kAvx512) {
        static const Kernels table = avx512::Table();
        return table;
    }
    if (level == CpuLevel::kAmx) {
        static const Kernels table = amx::Table();
        return table;
    }
#elif defined(__aarch64__)
    if (level == CpuLevel::kNeon) {
        static const Kernels table = neon::Table();
        return table;
    }
    if (level == CpuLevel::kI8mm) {
        static const Kernels table = i8mm::Table();
        return table;
    }
#endif
    static const Kernels reference = reference::Table();
    return reference;
}

}  // namespace weft::kernels
