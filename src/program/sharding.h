// Sharding: how each value of a rank's Program relates to the same value on the other ranks of
// its tensor group. Differentiate needs it to find the gradients that are sums over ranks.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

enum class Sharding {
    kReplicated,  // the same on all ranks
    kSharded,     // each rank has its own part
    kPartialSum,  // the value is the sum over ranks
    kRowSharded,  // each rank has its own rows (program/sequence_parallel.h)
};

// Ops without a gradient: ops that Differentiate writes, ops of updates, and inference-only ops.
template <typename T>
concept kHasNoGradient = T::kRow.pass != Pass::kBoth&& T::kRow.pass != Pass::kTraining;

// The sharding of each value of a forward Program that passes CheckShapes, by ValueId. Inputs,
// received values and outputs of Embedding count as replicated (if the table is cut, an all_reduce
// follows, which changes no gradient). Weights have no sharding: the op that reads a weight states
// how it is cut. Errors: kUnsupported (names op and value; see differentiate.h).
Result<std::vector<Sharding>> InferSharding(const Program& forward);

// The place of a rank's columns of a value within the columns of all ranks. PlaceColumns: by
// ValueId, for an inference Program.
struct Columns {
    int64_t begin = 0;
    bool cut = false;  // each rank has its own columns
};
std::vector<Columns> PlaceColumns(const Program& program);

}  // namespace weft::program
