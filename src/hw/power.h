// What the processors of this machine use.
#pragma once

#include <cstdint>

namespace weft {

// Microjoules that the processor packages have used since some moment, from the kernel's powercap
// tree (RAPL); the difference of two readings counts (the counter wraps after minutes to hours: a
// smaller second reading says so). -1: not readable here, as for users other than root, or in most
// virtual machines. Source: Linux, Documentation/power/powercap/powercap.rst.
int64_t ProcessorEnergyUj();

}  // namespace weft
