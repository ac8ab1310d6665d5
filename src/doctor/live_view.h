// The view of this machine. Reads only regular files, never a pipe or device. Programs run without
// a shell, each with a deadline and all with a common one.
#pragma once

#include <cstdint>
#include <memory>

#include "doctor/host_view.h"

namespace weft::doctor {

struct LiveOptions {
    int64_t command_ms = 5000;  // per program
    int64_t total_ms = 60000;   // for all programs together
    bool measure = true;        // run the probes measure/...
};

std::unique_ptr<HostView> MakeLiveView(const LiveOptions& options = {});

}  // namespace weft::doctor
