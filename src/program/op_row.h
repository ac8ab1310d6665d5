// The row of an op: a constant in the op's struct that describes the op (see ops.h).
#pragma once

#include <cstdint>

namespace weft::program {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// The ranks of a collective: the tensor group, neighbors in the pipeline, the ranks with different
// data, the two stages that hold one tensor, all ranks.
enum class Group { kTensor, kPipeline, kData, kTied, kWorld };

// How a MatMul's weight is cut over the tensor group. Differentiate needs it to place the
// transposed collectives: a column-parallel weight makes the gradient of its input partial.
enum class Cut { kNone, kRows, kColumns };  // kRows: ranks divide the outputs; kColumns: inputs

// The passes in which an op runs.
enum class Pass {
    kInference,  // forward; it has no gradient
    kBoth,       // forward, in inference and in training
    kTraining,   // forward, in training only
    kBackward,   // written by Differentiate, which does not differentiate it
    kUpdate,     // after the forward and backward passes of a batch (update.h)
};
struct Trait {
    enum : unsigned {
        kRowWise = 1 << 0,      // a result row depends only on the same rows of operands,
        kSeesEarlier = 1 << 1,  // or also on earlier rows of its sequence, through a KV cache
        // Whether recomputation (recompute.h) repeats the op. kCheap: with kSelective and kFull.
        // kStream (the residual stream) and kOnce (choices of experts): never. Others: with kFull
        // only.
        kCheap = 1 << 2,
        kStream = 1 << 3,
        kOnce = 1 << 4,
        kExact = 1 << 5,  // all operands are :exact
        // Communication: a message between two ranks, or one of three collectives.
        kMessage = 1 << 6,
        kAllReduce = 1 << 7,
        kAllGather = 1 << 8,
        kReduceScatter = 1 << 9,
        kTransfer = kMessage | kAllReduce | kAllGather | kReduceScatter,
        kBeside = 1 << 10,  // a transfer that backends may overlap with computation
        // The op's time depends on its FLOPs: attention, or one of the three products with a
        // weight. The time of other ops depends on their bytes.
        kAttention = 1 << 11,
        kProduct = 1 << 12,
        kProductGradInput = 1 << 13,
        kProductGradWeight = 1 << 14,
        kAnyProduct = kProduct | kProductGradInput | kProductGradWeight,
        kByFlops = kAttention | kAnyProduct,
        kLogits = 1 << 15,  // a product whose result, the logits, is no Program value
        kRouter = 1 << 16,  // chooses experts: output 0 has their ids, input 0 the scores
    };
};

struct OpRow {
    const char* name;      // unique: "mat_mul"
    const char* operands;  // see ops.h
    Pass pass = Pass::kBoth;
    unsigned traits = 0;
    int flops = 0;  // per element of the first input; cost.cc adds the rest
    constexpr bool Is(unsigned trait) const { return (traits & trait) != 0; }
};

}  // namespace weft::program
