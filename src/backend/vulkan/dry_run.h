// A Program lowered for a device that nothing is given to: what it would need, and what it refuses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/executable.h"
#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/fuse.h"
#include "base/result.h"

namespace weft::backend::vulkan {

// Scratch and constants of steps of these shapes, one after the other. Errors: kUnsupported, naming
// the op: what no kernel takes, or more workgroups than the device does.
Result<uint64_t> ScratchBytes(const program::Program& program, const Fusion& fusion,
                              const gpu::Description& gpu, std::span<const StepShape> shapes,
                              bool reference, const Arithmetic& arithmetic, bool trains = false);

// The largest step of an executable; and that with few rows that decode, which have other kernels.
StepShape MostOf(const CompileOptions& options);
std::vector<StepShape> LargestOf(const CompileOptions& options, const Arithmetic& arithmetic);

// What memory() of such an executable says before its first step. Without Vulkan in this weft the
// same. Errors: kUnsupported.
Result<MemoryUse> PlanMemory(const program::Program& program, const CompileOptions& options,
                             const gpu::Description& gpu, const Arithmetic& arithmetic);

// A GPU as there are many, for the memory of one that is not here.
gpu::Description CommonGpu();

}  // namespace weft::backend::vulkan
