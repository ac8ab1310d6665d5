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
        kRowWise = 1,      // a row of the result depends on the same rows of operands alone,
        kSeesEarlier = 2,  // or on earlier ones of its sequence, too, through a KV cache
        // What recomputation (recompute.h) makes again: kCheap with kSelective, too; kStream (the
        // residual stream) and kOnce (choices, made once) never.
        kCheap = 4,
        kStream = 8,
        kOnce = 16,
        kExact = 32,     // all operands are :exact
        kTransfer = 64,  // communication
        kBeside = 128,   // a transfer that backends may run beside the arithmetic
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
