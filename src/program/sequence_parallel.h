// Sequence parallelism (Korthikanti et al. 2022) as a transformation of the op list. Without it,
// all tensor ranks compute the same rows between sharded projections. With it, each rank computes
// only its own rows there.
//
//   all_reduce of rows       becomes reduce_scatter_rows: a rank gets the sums of its own rows
//   norms, additions, scales, and products with whole weights (routers)
//                            read and write own rows
//   ops that need all rows   read the result of one gather_rows, shared by all its readers
//   send, recv               own rows go to the same tensor rank of the next stage
//
// The residual stream and the values kept for norms take only this rank's share of the memory. A
// reduce_scatter and a gather send as many bytes as an all_reduce. The number of rows need not be a
// multiple of the number of ranks.
#pragma once

#include "program/program.h"

namespace weft::program {

// Transforms the forward Program of one of `ranks` tensor ranks. It must pass CheckShapes, and so
// does the result. With one rank it is unchanged.
Program ApplySequenceParallel(Program forward, int ranks);

}  // namespace weft::program
