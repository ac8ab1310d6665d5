// Plans the arena of a Program whose rows may run in two halves, and the arenas of training.
#pragma once

#include <cstdint>
#include <vector>

#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::program {

// As PlanArena, for backends that run the first half of a step's rows up to one sum (all_reduce)
// ahead of the second half. Values used before a sum stay alive until the end of the ops between
// that sum and the next. So neither half overwrites rows that the other half still reads.
ArenaPlan PlanArenaInHalves(const Program& program, int64_t tokens, int64_t outputs,
                            const std::vector<ValueId>& keep);

// For training. With `apart`, for backends that run the forward part of one step before the
// backward part of another: values that live from a chunk's forward ops into its backward ops have
// their own plan (`kept`), with a copy per concurrent step of a chunk. All steps share the memory
// of the other values (`brief`). Without `apart`, `kept` contains all.
// With `overlap`, for backends that compute during a zero_reduce_scatter: its input stays alive
// until the chunk's next zero_reduce_scatter.
// block_bytes: as LayoutOptions (memory_layout.h).
struct TrainingArenaOptions {
    bool apart = false;
    bool overlap = false;
    int64_t block_bytes = 0;
};
// The lowest place from `offset` on where these bytes cross no multiple of block_bytes.
int64_t WithinBlock(int64_t offset, int64_t bytes, int64_t block_bytes);

struct TrainingArenaPlan {
    ArenaPlan kept, brief;
};
TrainingArenaPlan PlanTrainingArena(const ChunkedProgram& all, int64_t tokens, int64_t outputs,
                                    const TrainingArenaOptions& options);

}  // namespace weft::program
