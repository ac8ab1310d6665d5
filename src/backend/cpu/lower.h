// Lowering: a Program's ops become calls of CPU kernels with resolved addresses, and barriers.
//
// A call (call.h) has every address filled in; only what a step binds (row counts, token ids,
// sequences) is set again when it changes. Built by Lower, run by executable.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "backend/cpu/call.h"
#include "backend/cpu/memory.h"
#include "backend/executable.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"

namespace weft::backend {

// Where everything lives.
struct Buffers {
    std::vector<std::byte*> values;               // by ValueId: activations, vectors
    std::vector<kernels::PackedMatrix> matrices;  // by ValueId: rank-2 weights
    std::vector<kernels::PackedStack> stacks;     // by ValueId: rank-3 weights
    std::vector<kernels::KvCache> caches;         // by ValueId: KV states
    std::vector<bool> is_adapter;                 // by ValueId: matrices that Adapt ops read
    // Lists that calls have views of.
    std::deque<std::vector<kernels::AdapterPair>> pairs;  // of each Adapt op that was lowered
    Memory weights, kv, arena, scratch;
};

// Plans and allocates weights, KV pages and the arena.
Result<Buffers> AllocateBuffers(const program::Program& program, const CompileOptions& options,
                                const kernels::Kernels& kernels);

// What a step runs: one of two lists, each in the Program's order, with barriers.
struct CallLists {
    std::vector<Call> plain;    // no row of the step uses an adapter: Adapt ops are left out
    std::vector<Call> adapted;  // empty where the Program has no Adapt op
};

// Allocates buffers.scratch (RoPE tables, prepared activations, attention scratch). kUnsupported
// for ops this backend does not run.
Result<CallLists> Lower(const program::Program& program, const CompileOptions& options,
                        const kernels::Kernels& kernels, int threads, Buffers& buffers);

// Sets `barrier` on every call that touches what another since the last barrier wrote, or writes
// what it read. Part of Lower; apart for its test.
void PlaceBarriers(std::vector<Call>& calls, const CompileOptions& options);
// Then sets `tail`.
void PlaceTails(std::vector<Call>& calls);

}  // namespace weft::backend
