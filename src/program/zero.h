// ZeRO (Rajbhandari et al. 2020) as a transformation of the op list: lays out trained weights and
// their gradients in units, and shards the units over the ranks with different data.
//
// A unit is a run of weights in the order of their first use, stored one after another and sent
// together. Each weight, and each gradient, becomes a view into its unit.
//   stages 0, 1  all ranks hold all units; no op is added. The code that updates the weights sums
//                the gradients over the ranks (stage 1: and shards the optimizer state)
//   stage 2      a unit's gradient is whole while ops add to it; then zero_reduce_scatter sums it
//                over the ranks, and each rank keeps its own part
//   stage 3      also, weights are kept as shares. zero_all_gather gathers a unit before its use,
//                in the forward pass and again in the backward pass. With prefetch_elements,
//                zero_all_gather runs some units earlier, for backends that overlap communication
// Vectors, and matrices with few elements, are in units that all ranks hold whole at every stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/differentiate.h"

namespace weft::program {

struct ZeroOptions {
    int stage = 0;
    int ranks = 1, rank = 0;           // in the data group
    int64_t unit_elements = 1 << 24;   // maximum of a unit; a larger weight has its own unit
    int64_t whole_elements = 0;        // weights of at most this size are held whole
    std::vector<std::string> alone{};  // tensors of the file that get units of their own
    // Each unit is gathered while earlier units are in use: at least one unit ahead, and this many
    // elements in all. 0: right before its own use. The forward pass gathers no unit for the
    // backward pass.
    int64_t prefetch_elements = 0;
    // Weights and shares begin at multiples of this many elements. A multiple of 32: 64 bytes of
    // BF16.
    int64_t grain = 32;
};

struct FlatBucket {
    struct Member {
        Value weight;  // the original name, shape, slice; each matrix of a stack is a member
        ValueId view = kNoValue;  // view of the weight, stages 0 to 2
        int64_t begin = 0;        // index of its first element in the unit
    };
    std::vector<Member> members;
    DType dtype = DType::kF32;           // of weights
    DType gradient_dtype = DType::kF32;  // may be wider: gradients add up in this type
    int64_t elements = 0;
    bool whole = false;          // all ranks hold and update all of it
    bool alone = false;          // one of ZeroOptions::alone
    std::vector<int64_t> parts;  // elements of each rank's share; {elements} if whole
    int64_t own_begin = 0, own_count = 0;
    // A whole unit holds all weights and gradients. Otherwise stage 2 holds this rank's part of the
    // gradients, and stage 3 its part of the weights and gradients.
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
