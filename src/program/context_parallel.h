// Context parallelism (DeepSpeed Ulysses, Jacobs et al. 2023) as a transformation of the op list.
// Each rank of a context group computes its own rows of the step, with whole weights. Only
// attention needs all rows of a sequence: there, each rank has some of the heads.
//
//     q, k, v of own rows, all heads  -> all_to_all -> all rows, own heads -> attention
//     out of all rows, own heads      -> all_to_all -> own rows, all heads
//
// Every value with rows is divided by the number of ranks, also the operands of attention: by
// rows or by heads. All ranks have the same work, because each sees all rows of causal attention.
// Ranks whose heads share a KV head all receive it. Masks, windows, slopes and packed sequences
// need no other kernel than on one rank. The gradients of weights are sums over the ranks, as in
// data parallelism.
#pragma once

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

// Transforms the forward Program of rank `rank` of `ranks`. It must pass CheckShapes, and so does
// the result. With one rank it is unchanged. Errors: kUnsupported: an op other than attention needs
// all rows, or there are fewer heads than ranks.
Result<Program> ApplyContextParallel(Program forward, int rank, int ranks);

}  // namespace weft::program
