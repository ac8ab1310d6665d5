// Measures from how many rows on it is faster if a device computes experts with weights that it
// reads from the host (program::Way::kStreamed) than if the host's processor computes them.
#pragma once

#include <cstdint>

#include "backend/executable.h"
#include "program/placement.h"

namespace weft::backend {

struct StreamBorder {
    int64_t rows = 0;  // least rows, a power of two; 0: the processor is always faster
    int64_t tried_rows = 0;
    double device_ms = 0, host_ms = 0;  // a layer's experts for `tried_rows` rows
};

// Runs the experts of one or two layers on the processor and on the device, with made-up values,
// for 8, 16, 32, ... rows. Call this when all weights are loaded, and no step runs. `placed` has
// streamed ops. Errors: errors of the Executables.
Result<StreamBorder> MeasureStreamBorder(const program::PlacedProgram& placed, Executable& device,
                                         Executable& host, const CompileOptions& options);

}  // namespace weft::backend
