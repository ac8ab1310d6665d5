// Sharding: how each value of a rank's Program relates to the same value on the other ranks of
// its tensor group. Differentiate needs it to know which gradients are sums over ranks.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

enum class Sharding {
    kReplicated,  // the same on all ranks
    kSharded,     // each rank has its own part
    kPartialSum,  // the sum over ranks is what is meant
    kRowSharded,  // each rank has its own rows (program/sequence_parallel.h)
};

// Ops that Differentiate writes, those of updates, and those that run in inference only: they have
// no gradient.
template <typename T>
concept kHasNoGradient = T::kRow.pass != Pass::kBoth&& T::kRow.pass != Pass::kTraining;

// The placement of each value of a forward Program that passes CheckShapes, by ValueId. Inputs,
// received values and outputs of Embedding count as whole (an all_reduce of a cut table's rows
// changes no gradient); weights are not placed: the op that reads one says how it is cut.
// Errors: kUnsupported, naming op and value, for what differentiate.h refuses.
Result<std::vector<Sharding>> InferSharding(const Program& forward);

// Where a rank's columns of a value begin in the value of all ranks. By ValueId, of a Program of
// inference.
struct Columns {
    int64_t begin = 0;
    bool cut = false;  // each rank has its own
};
std::vector<Columns> PlaceColumns(const Program& program);

}  // namespace weft::program
