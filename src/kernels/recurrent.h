// Kernels of ops with a state that each row of a sequence updates: the causal convolution and the
// gated delta rule (program/recurrent.h has the formulas).
//
// States are in slots. A sequence starts with the state in slot `from` (-1: zeros). The state after
// its last row is stored in slot `to`, which may be the same slot. `writes` lists further rows
// after which the state is stored, and the slots.
// Rows are computed in order, and parts divide columns. So a row's bits do not depend on later
// rows, other sequences or the number of parts.
#pragma once

#include "kernels/args.h"
#include "kernels/state_write.h"

namespace weft::kernels {

// The rows of a step that belong to one sequence, and its slots.
struct StateSequence {
    int32_t row_begin = 0, row_count = 0;
    int32_t from = -1, to = -1;
    std::span<const StateWrite> writes{};  // ascending by row
};

struct StateSlots {
    float* data = nullptr;
    int64_t slot_floats = 0;
    float* At(int64_t slot) const { return data + slot * slot_floats; }
};

// The largest supported number of taps of a convolution.
inline constexpr int64_t kMostTaps = 8;

struct CausalConvArgs {
    std::span<const StateSequence> sequences;
    const float* x = nullptr;       // [rows, cols]
    const float* weight = nullptr;  // [cols, taps]
    const float* bias = nullptr;    // [cols] or null
    const float* inner = nullptr;   // [rows, cols], factor on x; null (with outer): no gates
    const float* outer = nullptr;   // [rows, cols], factor on the result
    int64_t cols = 0, taps = 0;     // at most kMostTaps
    bool silu = false;
    StateSlots state;    // per slot: [taps - 1, cols], the oldest row first
    float* y = nullptr;  // [rows, cols]
};

// Computes two inputs of the delta rule for each row and head. fade = exp(a * softplus(decay +
// dt)); if floor is not 0, fade = exp(floor * sigmoid(|a| * (decay + dt))). strength =
// sigmoid(beta); if beta is null (SSD), strength = softplus(decay + dt). each: number of decays per
// head.
struct DeltaGatesArgs {
    const float* decay = nullptr;  // [rows, heads * each]; [rows, heads] if `rates`
    const float* beta = nullptr;   // [rows, heads]; may be null if each == 1
    const float* a = nullptr;      // [heads]; [heads * each] if `rates`
    const float* dt = nullptr;     // [heads * each]; [heads] if `rates`
    bool rates = false;            // a head has one step, and `each` rates
    int64_t rows = 0, heads = 0, each = 1;
    float floor = 0;
    float* fade = nullptr;      // [rows, heads * each]
    float* strength = nullptr;  // [rows, heads]
};
void DeltaGates(const DeltaGatesArgs& args, int part, int parts);

// Number of columns per block of a head's state. The `value_dim` columns are divided into
// consecutive blocks of this many columns (the last block may have fewer), and a block is stored as
// [key_dim, columns of the block].
inline constexpr int64_t kStateColumns = 16;

// With `skip`, this is Mamba-2's SSD: a row updates the state by k (strength * v)^T, and skip * v
// is added to y.
struct DeltaRuleArgs {
    std::span<const StateSequence> sequences;
    const float* q = nullptr;         // [rows, key_heads * key_dim]
    const float* k = nullptr;         // the same
    const float* v = nullptr;         // [rows, heads * value_dim]
    const float* fade = nullptr;      // [rows, heads * each]; each: 1, or key_dim
    const float* strength = nullptr;  // [rows, heads]
    const float* skip = nullptr;      // [heads] or null
    int64_t heads = 0, key_heads = 0, key_dim = 0, value_dim = 0, each = 1;
    // Head h uses query and key head (first_head + h) / group - first_key_head. If cycle is not 0,
    // it uses (first_head + h) % cycle - first_key_head instead.
    int64_t first_head = 0, first_key_head = 0, group = 1, cycle = 0;
    float query_scale = 1, key_scale = 1;
    StateSlots state;            // per slot: [heads, key_dim * value_dim] in blocks of columns
    float* scratch = nullptr;    // [parts, scratch_floats]
    int64_t scratch_floats = 0;  // DeltaScratch(key_dim)
    float* y = nullptr;          // [rows, heads * value_dim]
    int64_t KeyHeadOf(int64_t h) const {
        const int64_t head = first_head + h;
        return (cycle > 0 ? head % cycle : head / group) - first_key_head;
    }
};
int64_t DeltaScratch(int64_t key_dim);

struct RecurrentKernels {
    Kernel<CausalConvArgs> causal_conv = nullptr;
    Kernel<DeltaRuleArgs> delta_rule = nullptr;
};

// Calls on_row(row, slot_after) for the rows of a sequence in order. slot_after is the slot in
// which the state after the row is stored (for the last row: `to`), or -1 if it is not stored.
// After on_row, calls on_copy(slot_after, slot) for each further slot in which the same state is
// stored.
template <typename OnRow, typename OnCopy>
inline void ForStateRows(const StateSequence& sequence, OnRow on_row, OnCopy on_copy) {
    size_t next = 0;
    const auto& writes = sequence.writes;
    const int32_t end = sequence.row_begin + sequence.row_count;
    for (int32_t row = sequence.row_begin; row < end; ++row) {
        while (next < writes.size() && writes[next].row < row) ++next;
        int32_t slot = row + 1 == end ? sequence.to : -1;
        if (slot < 0 && next < writes.size() && writes[next].row == row) slot = writes[next++].slot;
        on_row(row, slot);
        for (; next < writes.size() && writes[next].row == row; ++next) {
            if (writes[next].slot != slot) on_copy(slot, writes[next].slot);
        }
    }
}

}  // namespace weft::kernels
