// Plans the memory of an Executable for a device that need not be present. The result equals
// memory() of the compiled Executable to the byte if the device is a processor or a typical GPU
// (kernels for matrix units and other subgroup sizes need different scratch memory).
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

// A device described by its memory: kHost is a processor, the other kinds are GPUs.
struct DescribedDevice {
    MemoryKind kind = MemoryKind::kHost;
    int threads = 1;  // processors only
    bool reference = false;
};

// The --device name of the first device of this kind.
const char* NameOf(MemoryKind kind);
// Describes the GPU's matrix arithmetic for display.
std::string ProductsOf(const gpu::Description& gpu);
// The DeviceInfo::target of such a device.
program::Target TargetOf(const DescribedDevice& device);

// Errors: kUnsupported (the device has no kernel for an op or a type).
Result<MemoryUse> PlanMemory(const program::ChunkedProgram& program, const CompileOptions& options,
                             const DescribedDevice& device);

}  // namespace weft::backend
