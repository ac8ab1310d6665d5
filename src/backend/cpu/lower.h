// Lowering: a Program's ops become calls of CPU kernels with resolved addresses, and barriers.
//
// A call (call.h) has every address filled in; only what a step binds (row counts, sequences, the
// slot) is set again when it changes. Run by executable.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/buffers.h"
#include "backend/cpu/call.h"
#include "backend/executable.h"

namespace weft::backend {

// What a step runs: one of two lists, each in the Program's order, with barriers.
struct CallLists {
    std::vector<Call> plain;    // no row of the step uses an adapter: Adapt ops are left out
    std::vector<Call> adapted;  // empty where the Program has no Adapt op
};

// Twice: buffers.scratch() is allocated in between. Errors: kUnsupported for ops this backend does
// not run, kOutOfMemory.
Result<CallLists> Lower(const program::ChunkedProgram& chunked, const CompileOptions& options,
                        const kernels::Kernels& kernels, int threads, Buffers& buffers);
// The first time alone: buffers.scratch() knows its size then.
Status CountScratch(const program::ChunkedProgram& chunked, const CompileOptions& options,
                    const kernels::Kernels& kernels, Buffers& buffers);

// Of a Program without chunks (lower_inference.cc), and of one with chunks (lower_training.cc).
Result<CallLists> LowerInference(const program::Program& program, const CompileOptions& options,
                                 const kernels::Kernels& kernels, Buffers& buffers);
Result<std::vector<Call>> LowerTraining(const program::ChunkedProgram& chunked,
                                        const CompileOptions& options,
                                        const kernels::Kernels& kernels, Buffers& buffers);

// Sets `barrier` on every call that touches what another since the last barrier wrote, or writes
// what it read.
void PlaceBarriers(std::vector<Call>& calls, const CompileOptions& options);
// Then sets `tail`.
void FuseEpilogues(std::vector<Call>& calls);
// Sets `waits_for`.
void PlaceWaits(std::vector<Call>& calls, const CompileOptions& options);

}  // namespace weft::backend
