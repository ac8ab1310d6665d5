// Sequence parallelism (Korthikanti et al. 2022) as a transformation of the list: between the
// projections that a tensor group shares, where its ranks would all do the same with all rows,
// each does it with its own rows.
//
//   all_reduce of rows       becomes reduce_scatter_rows: a rank gets the sums of its own rows
//   norms, additions, scales take and give own rows; so do products with whole weights (routers)
//   what needs all rows      reads what gather_rows brings together, once for all its readers
//   send, recv               own rows go to the same tensor rank of the next stage
//
// The residual stream and what norms keep take a share of the memory; a reduce_scatter and a gather
// send what an all_reduce does. Rows need not divide by the ranks.
#pragma once

#include "program/program.h"

namespace weft::program {

// Of a forward Program of one of `ranks` tensor ranks that passes CheckShapes; one rank's stays as
// it is. The result passes CheckShapes.
Program ApplySequenceParallel(Program forward, int ranks);

}  // namespace weft::program
