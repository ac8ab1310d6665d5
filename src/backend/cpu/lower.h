// Lowering of a Program: its ops become calls of CPU kernels, with addresses and barriers.
//
// The lowering fills in every address of a call (call.h). Before each step, BindCall sets only row
// counts, sequences and the slot, and only if they changed. executable.cc runs the calls.
#pragma once

#include <vector>

#include "backend/cpu/buffers.h"
#include "backend/cpu/call.h"

namespace weft::backend {

// Two lists of calls, each in the Program's order, with barriers. A step runs one of them.
struct CallLists {
    std::vector<Call> plain;    // for steps without adapters: no Adapt ops
    std::vector<Call> adapted;  // empty if the Program has no Adapt op
};

// Lowers the Program of `buffers` twice, and allocates buffers.scratch() between the two. Errors:
// kUnsupported (an op that this backend does not run), kOutOfMemory.
Result<CallLists> LowerProgram(Buffers& buffers, int threads);
// Runs only the first lowering, after which buffers.scratch() has its final size.
Status CountScratch(Buffers& buffers);

// barriers.cc. Sets `barrier` on every call that touches bytes written since the last barrier, or
// writes bytes read since then.
void PlaceBarriers(std::vector<Call>& calls);
// Sets `tail`. Call it after PlaceBarriers.
void FuseEpilogues(std::vector<Call>& calls);
// Sets `waits_for`.
void PlaceWaits(std::vector<Call>& calls);

}  // namespace weft::backend
