// What a Vulkan device makes of a Program of inference.
#pragma once

#include <memory>

#include "backend/device.h"
#include "backend/vulkan/context.h"
#include "base/result.h"

namespace weft::backend::vulkan {

// Nothing is allocated before the first weight is loaded, or the first step runs: until then its
// memory() is what it will take. pool: where. Errors: kUnsupported, kOutOfMemory.
Result<std::unique_ptr<Executable>> CompileForVulkan(program::ChunkedProgram program,
                                                     const CompileOptions& options,
                                                     std::shared_ptr<Context> context,
                                                     const MemoryPool& pool);

}  // namespace weft::backend::vulkan
