// The Executable of a Program of which the host's processor runs some ops.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"
#include "program/program.h"

namespace weft::backend {

// on_host: by op. stream_rows: least rows of a step whose experts the device computes, with weights
// that it reads from the host (program::Way); 0: the device computes none; -1: measured before the
// first step. Errors: as program::PlaceOps; errors of both devices.
Result<std::unique_ptr<Executable>> CompilePlaced(program::Program program,
                                                  const std::vector<bool>& on_host, Device& device,
                                                  Device& host, const CompileOptions& options,
                                                  int64_t stream_rows);

}  // namespace weft::backend
