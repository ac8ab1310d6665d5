// The row of an op: what ops.h and update.h say about each in one place.
#pragma once

#include <cstdint>

namespace weft::program {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// Which ranks a collective is of: the tensor group, neighbours in the pipeline, the ranks that see
// other data, the two stages that hold one tensor, all.
enum class Group { kTensor, kPipeline, kData, kTied, kWorld };

// How a MatMul's weight is cut over the TP group; differentiate needs it to place the transposed
// collectives: a column-parallel weight makes the gradient of its input partial.
enum class Cut { kNone, kRows, kColumns };  // kRows: outputs are shared out; kColumns: inputs are

// Where an op runs.
enum class Pass {
    kInference,  // forward; it has no gradient
    kBoth,       // forward, in inference and in training
    kTraining,   // forward, in training only
    kBackward,   // Differentiate writes it, and does not differentiate it
    kUpdate,     // behind all passes of a batch (update.h)
};
struct Trait {
    enum : unsigned {
        kRowWise = 1 << 0,      // a row of the result depends on the same rows of operands alone,
        kSeesEarlier = 1 << 1,  // or on earlier ones of its sequence, too, through a KV cache
        // What recomputation (recompute.h) makes again: kCheap with kSelective, too; kStream (the
        // residual stream) and kOnce (choices, made once) never.
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
        kBeside = 1 << 10,  // a transfer that backends may run beside the arithmetic
        // Its time goes by its FLOPs, as that of attention or of one of the three products with a
        // weight. That of all other ops goes by their bytes.
        kAttention = 1 << 11,
        kProduct = 1 << 12,
        kProductGradInput = 1 << 13,
        kProductGradWeight = 1 << 14,
        kAnyProduct = kProduct | kProductGradInput | kProductGradWeight,
        kByFlops = kAttention | kAnyProduct,
        kLogits = 1 << 15,  // a product whose results, the logits, are no value of the Program
        kRouter = 1 << 16,  // chooses experts: the first output has their ids, by input 0's scores
    };
};

struct OpRow {
    const char* name;      // unique: "mat_mul"
    const char* operands;  // as above
    Pass pass = Pass::kBoth;
    unsigned traits = 0;
    int flops = 0;  // for each element of the first input; what is more, cost.cc adds
    constexpr bool Is(unsigned trait) const { return (traits & trait) != 0; }
};

}  // namespace weft::program
