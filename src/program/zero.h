// ZeRO (Rajbhandari et al. 2020) as a transformation of the list: weights that are trained, and
// their gradients, laid out in units, and shared out over the ranks that see different data.
//
// A unit is a run of weights, one behind the other in the order of their first use, that travel
// together. Each weight becomes a view into its unit, and so does its gradient.
//   stages 0, 1  all ranks hold all units; nothing is added to the list: who updates the weights
//                sums the gradients over the ranks (stage 1: and shares out the optimizer's state)
//   stage 2      a unit's gradient is whole for as long as ops add to it; then zero_reduce_scatter
//                sums it over the ranks, and each keeps its own part
//   stage 3      and weights are kept as shares: zero_all_gather brings a unit together before ops
//                use it, in the forward pass and again in the backward pass; with
//                prefetch_elements some units earlier, for backends that communicate beside
// Vectors, and matrices of few elements, are in units that all ranks hold whole at every stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/differentiate.h"

namespace weft::program {

struct ZeroOptions {
    int stage = 0;
    int ranks = 1, rank = 0;           // of the data group
    int64_t unit_elements = 1 << 24;   // most of a unit, but for one larger weight alone
    int64_t whole_elements = 0;        // weights of at most so many are held whole
    std::vector<std::string> alone{};  // tensors of the file that get units of their own
    // Units are gathered while those before them are used: of so many elements in all, and at
    // least one; 0: right before their own use. Not across the turn from forward to backward.
    int64_t prefetch_elements = 0;
    // Weights and shares begin at multiples of so many elements, itself a multiple of 32: 64 bytes
    // of BF16.
    int64_t grain = 32;
};

struct FlatBucket {
    struct Member {
        Value weight;  // as it was before: name, shape, slice; of a stack each matrix is a member
        ValueId view = kNoValue;  // of the weight, stages 0 to 2
        int64_t begin = 0;        // elements before it
    };
    std::vector<Member> members;
    DType dtype = DType::kF32;           // of weights
    DType gradient_dtype = DType::kF32;  // may be wider: what passes add up in
    int64_t elements = 0;
    bool whole = false;          // all ranks hold and update all of it
    bool alone = false;          // one of ZeroOptions::alone
    std::vector<int64_t> parts;  // elements of each rank's share; {elements} where whole
    int64_t own_begin = 0, own_count = 0;
    // Whole units have both whole. Else: stage 2 keeps its own part of gradients, stage 3 of both.
    ValueId weights = kNoValue, gradients = kNoValue;
    bool weights_shared = false, gradients_shared = false;
};

struct ZeroProgram {
    Differentiated differentiated;  // its `gradients` are views, for stages 0 and 1 only
    std::vector<FlatBucket> units;
};

// The result passes CheckShapes.
ZeroProgram ApplyZero(Differentiated differentiated, const ZeroOptions& options);

}  // namespace weft::program
