// Lowers a Program without a device, to find the memory that it needs and the errors of its ops.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/lower/fuse.h"
#include "base/result.h"

namespace weft::backend::on_gpu {

// How a device would lower (Emitter).
struct DryOptions {
    Arithmetic arithmetic{};
    bool reference = false, trains = false;
};

// Checks that all ops of the Program can be lowered, with their types and sizes. Called before any
// weight is loaded.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const DryOptions& options);

// The buffers of scratch memory and of constants.
struct ScratchPlan {
    std::map<std::string, uint64_t, std::less<>> sizes;  // of each piece of scratch memory
    uint64_t constant_bytes = 0;                         // of all constants, in blocks
    uint64_t largest_constant_bytes = 0;
    uint64_t bytes() const;
};
// Returns the needs of steps of these shapes if they run one after another. Errors: kUnsupported
// (names the op; no kernel supports it, or it needs more workgroups than the device allows).
Result<ScratchPlan> PlanScratch(const program::Program& program, const Fusion& fusion,
                                const gpu::Description& gpu, std::span<const StepShape> shapes,
                                const DryOptions& options);

// A shader with the specialization constants that a step uses (Emitter::Kernel).
struct KernelUse {
    std::string shader;
    std::vector<uint32_t> constants;
    uint32_t args_bytes = 0, subgroup = 0;
    auto operator<=>(const KernelUse&) const = default;
};
// Returns the kernels that steps of these shapes use, each once. Errors: as PlanScratch.
Result<std::vector<KernelUse>> KernelsOf(const program::Program& program, const Fusion& fusion,
                                         const gpu::Description& gpu,
                                         std::span<const StepShape> shapes,
                                         const DryOptions& options);

// MostOf returns the shape of the largest step of an executable. LargestOf returns that shape and
// the shapes of decode steps with few rows, because such steps use other kernels.
StepShape MostOf(const CompileOptions& options);
std::vector<StepShape> LargestOf(const CompileOptions& options, const Arithmetic& arithmetic);

// Returns the same sizes as memory() of the Program's executable before the first step. The result
// is the same in builds without Vulkan. Errors: kUnsupported.
Result<MemoryUse> PlanMemory(const program::Program& program, const CompileOptions& options,
                             const gpu::Description& gpu, const Arithmetic& arithmetic);

// A typical GPU, for memory plans without the GPU.
gpu::Description CommonGpu();

}  // namespace weft::backend::on_gpu
