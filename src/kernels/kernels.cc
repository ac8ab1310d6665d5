#include "kernels/kernels.h"

#include "cpu_levels.h"
#include "kernels/reference/ops.h"

namespace weft::kernels {

// Each set has one function that makes its table (vector/table.cc, amx/table.cc, avxvnni/table.cc).
#define WEFT_DECLARE(set, level) \
    namespace set {              \
    Kernels Table();             \
    }
WEFT_BUILT_SETS(WEFT_DECLARE)

bool IsBuilt(CpuLevel level) {
#define WEFT_IS_SET(set, own) || level == CpuLevel::own
    return level == CpuLevel::kReference WEFT_BUILT_SETS(WEFT_IS_SET);
}

// Each table is made at its first use: the function that makes it is compiled for its set and must
// not run on other processors.
const Kernels& KernelsFor(CpuLevel level) {
#define WEFT_TABLE(set, own)                       \
    if (level == CpuLevel::own) {                  \
        static const Kernels table = set::Table(); \
        return table;                              \
    }
    WEFT_BUILT_SETS(WEFT_TABLE)
    static const Kernels reference = reference::Table();
    return reference;
}

}  // namespace weft::kernels
