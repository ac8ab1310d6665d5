// A Program lowered for a device that nothing is given to: what it would need, and what it refuses.
#pragma once

#include <cstdint>

#include "backend/vulkan/dispatch.h"
#include "base/result.h"

namespace weft::backend::vulkan {

// Scratch and constants of a step of this shape. Errors: kUnsupported, naming the op.
Result<uint64_t> ScratchBytes(const program::Program& program, const gpu::Description& gpu,
                              const StepShape& shape, bool reference, const Arithmetic& arithmetic);

}  // namespace weft::backend::vulkan
