// What an Executable would hold, of a device that need not be here: `memory()` of one that Compile
// makes says the same, to the byte where the device is a processor, or a GPU like the common one
// (kernels for matrix units and other subgroups take other scratch memory).
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

// A device by what its memory is: kHost is a processor, all else a GPU.
struct DescribedDevice {
    MemoryKind kind = MemoryKind::kHost;
    int threads = 1;  // of a processor
    bool reference = false;
};

// As --device takes the first of such devices.
const char* NameOf(MemoryKind kind);
// How a GPU multiplies, for people.
std::string ProductsOf(const gpu::Description& gpu);
// As DeviceInfo::target of such a device.
program::Target TargetOf(const DescribedDevice& device);

// Errors: kUnsupported (an op or a type that no kernel of the device takes).
Result<MemoryUse> PlanMemory(const program::ChunkedProgram& program, const CompileOptions& options,
                             const DescribedDevice& device);

}  // namespace weft::backend
