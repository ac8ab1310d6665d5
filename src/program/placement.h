// Placement: how each value of a rank's Program relates to the same value on the other ranks of
// its tensor group. Differentiate needs it to know which gradients are sums over ranks.
#pragma once

#include <type_traits>
#include <vector>

#include "base/result.h"
#include "program/program.h"

namespace weft::program {

enum class Placement {
    kWhole,    // the same on all ranks
    kCut,      // each rank has its own part
    kPartial,  // the sum over ranks is what is meant
    kShare,    // each rank has its own rows (program/row_shares.h)
};

// Ops that Differentiate writes and does not differentiate.
template <typename T>
concept kOnlyBackward =
    kOfUpdate<T> || std::is_same_v<T, SliceColumns> || std::is_same_v<T, SliceRows> ||
    std::is_same_v<T, PadColumns> || std::is_same_v<T, MatMulGradInput> ||
    std::is_same_v<T, MatMulGradWeight> || std::is_same_v<T, BiasGrad> ||
    std::is_same_v<T, RmsNormGradInput> || std::is_same_v<T, RmsNormGradWeight> ||
    std::is_same_v<T, AttentionGrad> || std::is_same_v<T, GluGrad> ||
    std::is_same_v<T, EmbeddingGrad> || std::is_same_v<T, RouteGrad> ||
    std::is_same_v<T, ExpertMatMulGradInput> || std::is_same_v<T, ExpertMatMulGradWeight> ||
    std::is_same_v<T, ExpertSumGradInput> || std::is_same_v<T, ExpertSumGradWeight> ||
    std::is_same_v<T, GateRowsGrad> || std::is_same_v<T, RouterLoadGrad> ||
    std::is_same_v<T, LoadBalanceGrad> || std::is_same_v<T, SelectRowsGrad> ||
    std::is_same_v<T, SoftmaxCrossEntropyGrad> || std::is_same_v<T, LinearCrossEntropyGrad> ||
    std::is_same_v<T, GatherShares> || std::is_same_v<T, ReduceShares>;

// Ops that run forward only, so far.
template <typename T>
concept kOnlyForward = std::is_same_v<T, HeadMatMul> || std::is_same_v<T, PickColumns> ||
    std::is_same_v<T, LatentAttention> || std::is_same_v<T, Adapt>;

// The placement of each value of a forward Program that passes CheckShapes, by ValueId. Inputs,
// received values and outputs of Embedding count as whole (an all_reduce of a cut table's rows
// changes no gradient); weights are not placed: the op that reads one says how it is cut.
// Errors: kUnsupported, naming op and value, for what differentiate.h refuses.
Result<std::vector<Placement>> Place(const Program& forward);

}  // namespace weft::program
