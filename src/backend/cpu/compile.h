// Compiles Programs for the CPU. The executables run on the threads of one device, one at a time.
#pragma once

#include <memory>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "hw/cpu.h"
#include "program/model_chunk.h"

namespace weft::kernels {
struct Kernels;
}

namespace weft::backend {

class ThreadTeam;

// State of the device. It must outlive the executables.
struct CpuContext {
    const kernels::Kernels& kernels;
    ThreadTeam& team;
    std::vector<int> cores;  // the team is pinned to these; empty: not pinned
};

// Returns what memory() of the executable from CompileForCpu would return, without compiling.
Result<MemoryUse> PlanCpuMemory(const program::ChunkedProgram& chunked,
                                const CompileOptions& options, CpuLevel level, int threads);
// Errors: kUnsupported, kOutOfMemory.
Result<std::unique_ptr<Executable>> CompileForCpu(program::ChunkedProgram chunked,
                                                  const CompileOptions& options,
                                                  const CpuContext& context);

}  // namespace weft::backend
