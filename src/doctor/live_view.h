// The HostView of this machine. It reads only regular files, never a pipe or device. It runs
// programs without a shell. Each program has a deadline, and all programs together have one.
#pragma once

#include <cstdint>
#include <memory>

#include "doctor/host_view.h"

namespace weft::doctor {

struct LiveOptions {
    int64_t command_ms = 5000;  // per program
    int64_t total_ms = 60000;   // for all programs together
    bool measure = true;        // run the probes "measure/..." (probe.h)
};

std::unique_ptr<HostView> MakeLiveView(const LiveOptions& options = {});

}  // namespace weft::doctor
