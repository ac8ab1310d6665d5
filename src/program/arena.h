// Plans the arena of a Program whose rows may run in two halves, and the arenas of training.
#pragma once

#include <cstdint>
#include <vector>

#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::program {

// Like PlanArena, but for backends that split a step's rows into two halves and run the first half
// ahead of the second half, by at most one sum (all_reduce). Values used before a sum stay alive
// until the end of the ops between that sum and the next. So no half overwrites rows that the other
// half still reads.
ArenaPlan PlanArenaInHalves(const Program& program, int64_t tokens, int64_t outputs,
                            const std::vector<ValueId>& keep);

// apart: the backend runs the forward part of one training step before the backward part of
// another. Values that live from a chunk's forward ops into its backward ops then have their own
// plan (`kept`), with a copy for each concurrent step of a chunk. All steps share the memory of all
// other values (`brief`). Without `apart`, `kept` contains all values.
// overlap: the backend computes during a zero_reduce_scatter, so the input of this op stays alive
// until the chunk's next zero_reduce_scatter.
// block_bytes: as LayoutOptions::block_bytes (memory_layout.h).
struct TrainingArenaOptions {
    bool apart = false;
    bool overlap = false;
    int64_t block_bytes = 0;
};
// The lowest offset, from `offset` on, at which `bytes` bytes lie in one block of block_bytes or
// begin at a block's start. block_bytes 0: `offset`.
int64_t WithinBlock(int64_t offset, int64_t bytes, int64_t block_bytes);

struct TrainingArenaPlan {
    ArenaPlan kept, brief;
};
TrainingArenaPlan PlanTrainingArena(const ChunkedProgram& all, int64_t tokens, int64_t outputs,
                                    const TrainingArenaOptions& options);

}  // namespace weft::program
