// Compiles a Program for a Vulkan device. The executable allocates its memory at its first use.
#pragma once

#include <memory>

#include "backend/device.h"
#include "backend/gpu/device/context.h"
#include "base/result.h"

namespace weft::backend::on_gpu {

// Memory is allocated when the first weight is loaded or the first step runs; before that, memory()
// returns its planned size. pool: the memory to allocate from. Errors: kUnsupported, kOutOfMemory.
Result<std::unique_ptr<Executable>> CompileForVulkan(program::ChunkedProgram program,
                                                     const CompileOptions& options,
                                                     std::shared_ptr<Context> context,
                                                     const MemoryPool& pool);

}  // namespace weft::backend::on_gpu
