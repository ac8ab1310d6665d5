#include "kernels/kernels.h"

#include "cpu_levels.h"
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
    switch (level) {
        case CpuLevel::kReference: return true;
        case CpuLevel::kAvx2: return WEFT_HAS_AVX2 != 0;
        case CpuLevel::kAvxVnni: return WEFT_HAS_AVXVNNI != 0;
        case CpuLevel::kAvx512: return WEFT_HAS_AVX512 != 0;
        case CpuLevel::kAmx: return WEFT_HAS_AMX != 0;
        case CpuLevel::kNeon: return WEFT_HAS_NEON != 0;
        case CpuLevel::kI8mm: return WEFT_HAS_I8MM != 0;
    }
    return false;
}

// Each table is made at its first use: the function that makes it is compiled for its set and must
// not run on other processors.
const Kernels& KernelsFor(CpuLevel level) {
#if WEFT_HAS_AVX2
    if (level == CpuLevel::kAvx2) {
        static const Kernels table = avx2::Table();
        return table;
    }
#endif
#if WEFT_HAS_AVXVNNI
    if (level == CpuLevel::kAvxVnni) {
        static const Kernels table = avxvnni::Table();
        return table;
    }
#endif
#if WEFT_HAS_AVX512
    if (level == CpuLevel::kAvx512) {
        static const Kernels table = avx512::Table();
        return table;
    }
#endif
#if WEFT_HAS_AMX
    if (level == CpuLevel::kAmx) {
        static const Kernels table = amx::Table();
        return table;
    }
#endif
#if WEFT_HAS_NEON
    if (level == CpuLevel::kNeon) {
        static const Kernels table = neon::Table();
        return table;
    }
#endif
#if WEFT_HAS_I8MM
    if (level == CpuLevel::kI8mm) {
        static const Kernels table = i8mm::Table();
        return table;
    }
#endif
    static const Kernels reference = reference::Table();
    return reference;
}

}  // namespace weft::kernels
