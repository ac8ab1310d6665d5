// The view of the machine that Weft runs on. Reads regular files only, never through a pipe or a
// device; programs run without a shell, each with a deadline of its own and one for all of them.
// Answers are kept, so that all checks see the same moment; Later asks anew.
#pragma once

#include <cstdint>
#include <memory>

#include "doctor/host_view.h"

namespace weft::doctor {

struct LiveOptions {
    int64_t command_ms = 5000;  // for one program
    int64_t total_ms = 60000;   // for all programs together
    bool measure = true;        // whether the probes measure/... run
};

std::unique_ptr<HostView> MakeLiveView(const LiveOptions& options = {});

}  // namespace weft::doctor
