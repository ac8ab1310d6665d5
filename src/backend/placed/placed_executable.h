// The Executable of a Program of which the host's processor runs some ops.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"
#include "program/program.h"

namespace weft::backend {

// on_host: by op. Errors: those of program::PlaceOps and of both devices.
Result<std::unique_ptr<Executable>> CompilePlaced(program::Program program,
                                                  const std::vector<bool>& on_host, Device& device,
                                                  Device& host, const CompileOptions& options);

}  // namespace weft::backend
