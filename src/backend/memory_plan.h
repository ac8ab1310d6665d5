// Plans the memory of an Executable for a device that need not be present. If the device is a
// processor or a typical GPU, the result is exactly what memory() of the compiled Executable
// returns. On other GPUs, kernels for matrix units or other subgroup sizes may need a different
// amount of scratch memory.
#pragma once

#include "backend/device.h"
#include "backend/executable.h"
#include "base/result.h"
#include "program/program.h"
#include "program/target.h"

namespace weft::gpu {
struct Description;
}

namespace weft::backend {

// A device described by the kind of its memory: kHost means a processor, the other kinds mean GPUs.
struct DescribedDevice {
    MemoryKind kind = MemoryKind::kHost;
    int threads = 1;  // processors only
    bool reference = false;
};

// The --device name of the first device of this kind.
const char* NameOf(MemoryKind kind);
// Text about the arithmetic that matrix products use on this GPU, for display.
std::string ProductsOf(const gpu::Description& gpu);
// The shapes of tiles measured on this GPU (backend/gpu/tune/tune.h), in one line; "": none.
std::string TilesOf(const gpu::Description& gpu);
// The DeviceInfo::target of such a device.
program::Target TargetOf(const DescribedDevice& device);

// Errors: kUnsupported (the device has no kernel for an op or a type).
Result<MemoryUse> PlanMemory(const program::ChunkedProgram& program, const CompileOptions& options,
                             const DescribedDevice& device);

}  // namespace weft::backend
