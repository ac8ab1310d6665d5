// The arena of a program whose rows may run in two halves.
#pragma once

#include <cstdint>
#include <vector>

#include "program/model_chunk.h"
#include "program/program.h"

namespace weft::program {

// As PlanArena, for backends that run the first half of a step's rows up to one sum (all_reduce)
// ahead of the second: what is used before a sum stays alive until the end of what follows it, up
// to the next. Then the rows of a half, each at its place in its value, are safe from the other.
ArenaPlan PlanArenaInHalves(const Program& program, int64_t tokens, int64_t outputs,
                            const std::vector<ValueId>& keep);

// For training. With `apart`, for backends that run the forward part of one step before the
// backward part of another: what lives from a chunk's forward ops into its backward ops stands in a
// plan of its own (`kept`), of which each step of a chunk under way has one; the rest in another,
// which all share. Else all is in `kept`.
// With `overlap`, for backends that compute while a zero_reduce_scatter is under way: what it sums
// up stays alive until the next one of the chunk.
// block_bytes: as LayoutOptions (memory_layout.h).
struct TrainingArenaOptions {
    bool apart = false;
    bool overlap = false;
    int64_t block_bytes = 0;
};
// The lowest place from `offset` on where so many bytes lie across no multiple of block_bytes.
int64_t WithinBlock(int64_t offset, int64_t bytes, int64_t block_bytes);

struct TrainingArenaPlan {
    ArenaPlan kept, brief;
};
TrainingArenaPlan PlanTrainingArena(const ChunkedProgram& all, int64_t tokens, int64_t outputs,
                                    const TrainingArenaOptions& options);

}  // namespace weft::program
