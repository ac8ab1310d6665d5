// The CPU levels under test.
#pragma once

#include <vector>

#include "hw/cpu.h"
#include "support/vnni_stand_in.h"

namespace weft::test {

// The levels that this CPU can run, and kAvxVnni on any CPU with AVX2 (support/vnni_stand_in.h), in
// ascending order. WEFT_CPU removes the levels above the given one.
inline std::vector<CpuLevel> TestedCpuLevels() {
    static const CpuFeatures features = [] {
        CpuFeatures found = DetectCpu();
        found.avx_vnni = found.avx_vnni || InstallVnniStandIn();
        return found;
    }();
    return UsableCpuLevels(features);
}

// Whether products of this level take microseconds each, so that a test gives the level fewer.
inline bool RunsWithStandIn(CpuLevel level) {
    static const bool stands_in = !DetectCpu().avx_vnni;
    return level == CpuLevel::kAvxVnni && stands_in;
}

}  // namespace weft::test
