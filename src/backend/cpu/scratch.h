// Scratch memory of a lowered Program: what calls work on beside its values. Part of lower.cc.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "backend/cpu/call.h"
#include "backend/cpu/memory.h"
#include "backend/executable.h"
#include "program/program.h"

namespace weft::backend {

struct Scratch {
    // Prepared activations: two, so that the next one does not wait for the readers of the last.
    Region prepared[2];
    // Of each thread: floats of attention, bytes of products of experts.
    Region attention, group;
    int64_t attention_floats = 0, group_bytes = 0;
    // The plan of a mixture of experts (kernels/experts.h), and its sums before they are rounded.
    Region plan_begin, plan_slots, wide;
    // x . a^T of adapters, of as many Adapt ops as follow one another; and their sums before they
    // are rounded, of the outputs in `segmented`.
    Region adapter_u, adapted;
    int64_t adapter_u_bytes = 0;  // of one op
    std::set<program::ValueId> segmented;
    // Cosines and sines by frequencies and magnitude: ropes with the same ones share a table.
    using Angles = std::pair<std::vector<float>, float>;
    static Angles AnglesOf(const program::Rope& a) { return {a.inverse_frequency, a.magnitude}; }
    std::map<Angles, Region> tables;
};

// What AllocateScratch takes.
int64_t ScratchBytes(const program::Program& program, const CompileOptions& options,
                     const kernels::Kernels& kernels, int threads);
// The most that any op of the Program needs, in `memory`. Errors: kOutOfMemory.
Result<Scratch> AllocateScratch(const program::Program& program, const CompileOptions& options,
                                const kernels::Kernels& kernels, int threads, Memory& memory);

// Floats of a row of an Adapt op's x . a^T.
int64_t AdapterStride(const program::Program& program, const program::Op& op);

}  // namespace weft::backend
