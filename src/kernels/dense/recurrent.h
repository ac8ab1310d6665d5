// Training of ops with a recurrent state: the forward pass over whole sequences, and gradients
// (program/recurrent.h has the formulas). All values are float32, and sequences begin without a
// state. Only row_begin and row_count of the sequences are read.
// dense/lookup.h explains the calling convention, parts and scratch memory.
#pragma once

#include "kernels/kernels.h"
#include "kernels/recurrent.h"

namespace weft::kernels::dense {

struct TrainedConvArgs {
    std::span<const Sequence> sequences;
    CausalConvArgs conv;  // without its sequences and state
};
void TrainedConv(const Kernels& kernels, const TrainedConvArgs& args, int part, int parts);

// The gradients of x, inner and outer; or of weight and bias, which are added. Parts divide the
// columns.
struct ConvGradArgs {
    std::span<const Sequence> sequences;
    CausalConvArgs conv;        // without its sequences, state and y
    const float* dy = nullptr;  // [rows, cols], as the next three
    float *dx = nullptr, *dinner = nullptr, *douter = nullptr;  // ConvGradInput
    float* dw = nullptr;                                        // ConvGradWeight: [cols, taps]
    float* db = nullptr;                                        // [cols] or null
};
void ConvGradInput(const ConvGradArgs& args, int part, int parts);
void ConvGradWeight(const ConvGradArgs& args, int part, int parts);

struct TrainedDeltaArgs {
    std::span<const Sequence> sequences;
    DeltaRuleArgs rule;  // without its sequences and state
};
void TrainedDelta(const Kernels& kernels, const TrainedDeltaArgs& args, int part, int parts);

// The gradients of DeltaRuleArgs' q, k, v, fade, strength and skip. The states are computed again:
// scratch holds the state before every kDeltaRows-th row, and the states of kDeltaRows rows at a
// time. The heads of a key head share its gradient. Parts divide the key heads of the sequences; if
// there are few key heads, parts also divide slices of the heads of each key head. Each slice then
// has its own addends of dq and dk, which DeltaKeysGrad adds up in order.
inline constexpr int64_t kDeltaRows = 32;
// The number of slices of a key head.
int64_t DeltaSlices(const DeltaRuleArgs& rule);
struct DeltaGradArgs {
    std::span<const Sequence> sequences;
    DeltaRuleArgs rule;                  // without its sequences, state and y
    const float* dy = nullptr;           // [rows, heads * value_dim]
    float *dq = nullptr, *dk = nullptr;  // [rows, key_heads * key_dim]
    float* dv = nullptr;                 // [rows, heads * value_dim]
    float* dfade = nullptr;              // [rows, heads * each]
    float* dstrength = nullptr;          // [rows, heads]
    float* dskip = nullptr;              // [rows, heads], or null without skip
    // [rows, slices, 2, key_heads * key_dim]: addends of dq, then of dk. Used instead of dq and dk
    // if there are several slices.
    float* addends = nullptr;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
// rows: of the longest sequence.
int64_t DeltaGradScratchBytes(const DeltaGradArgs& args, int64_t rows);
void DeltaGrad(const DeltaGradArgs& args, int part, int parts);

struct DeltaKeysGradArgs {
    const float* addends = nullptr;
    int64_t rows = 0, slices = 0, cols = 0;  // cols: key_heads * key_dim
    float *dq = nullptr, *dk = nullptr;
};
void DeltaKeysGrad(const DeltaKeysGradArgs& args, int part, int parts);

// The gradients of DeltaGates (kernels/recurrent.h). da has a row's addend to the gradient of a.
struct DeltaGatesGradArgs {
    DeltaGatesArgs gates;              // without its results
    const float* fade = nullptr;       // its result
    const float* dfade = nullptr;      // [rows, heads * each]
    const float* dstrength = nullptr;  // [rows, heads]
    float* ddecay = nullptr;           // [rows, heads * each]
    float* dbeta = nullptr;            // [rows, heads]; null if beta is
    float* da = nullptr;               // [rows, heads]
};
void DeltaGatesGrad(const DeltaGatesGradArgs& args, int part, int parts);

}  // namespace weft::kernels::dense
