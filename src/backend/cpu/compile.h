// What the CPU makes of Programs: executables that run on the threads of one device, one of them at
// a time.
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

// Of a device, which outlives what is compiled.
struct CpuContext {
    CpuLevel level;
    const kernels::Kernels& kernels;
    ThreadTeam& team;
    std::vector<int> cores;  // that the team is pinned to; empty: not pinned
};

// What memory() of CompileForCpu's executable says, without one.
Result<MemoryUse> PlanCpuMemory(const program::ChunkedProgram& chunked,
                                const CompileOptions& options, CpuLevel level, int threads);
// Errors: kUnsupported, kOutOfMemory.
Result<std::unique_ptr<Executable>> CompileForCpu(program::ChunkedProgram chunked,
                                                  const CompileOptions& options,
                                                  const CpuContext& context);

}  // namespace weft::backend
