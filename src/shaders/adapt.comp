//: adapt_down -DDOWN
//: adapt_up -DUP
// Adapters beside a product (program::Adapt, AdaptExperts, AdaptExpertSum), in the rows of
// sequences that use one:
//     down  u[t][r] = x[t] . a[r], or without b, y[t][r] = x[t] . a[r] + shift[r]
//           a workgroup for each r (x) and row (y)
//     up    y[t][c] = gain[c] * y[t][c] + u[t] . b[c] + shift[c]         an invocation for each c
// Other rows, and rows whose adapter has no matrices here, are not touched. With experts (a.used is
// not 0), the rows of u are slots, and a and b are stacks of matrices.
#version 460
#include "head.glsl"
#include "halves.glsl"
#include "sequences.glsl"

struct Pair {
    uint64_t a, b, gain, shift;  // 0: absent
    uint a_row_bytes, b_row_bytes;
    int adapter;
    uint rank;                  // number of rows of a
    uint a_type, b_type;        // 0: F32, 1: BF16, 2: F16
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Pairs { Pair at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at[]; };

layout(push_constant, scalar) uniform Args {
    uint64_t x, u, y;
    uint64_t pairs, row_sequence, sequences;
    uint64_t output_rows;   // of rows that are output rows; else 0
    uint64_t ids, weights;  // weights: up adds the slots of a row to its y
    uint count, cols, n, u_stride;
    uint used, first_expert, experts, by_token;
} a;

const uint kMostSubgroups = 32;
const uint kColumnBytes = 16;  // of each value of gain and shift
shared float partial[kMostSubgroups];

// The pair of a row of the step or an output row; a.count: none.
uint PairOf(uint row) {
    const int of_step = a.output_rows == 0 ? int(row) : Ints(a.output_rows).at[row];
    const int sequence = Ints(a.row_sequence).at[of_step];
    const int adapter = Sequences(a.sequences).at[sequence].adapter;
    for (uint i = 0; adapter != 0 && i < a.count; ++i) {
        if (Pairs(a.pairs).at[i].adapter == adapter) return i;
    }
    return a.count;
}

float Element(uint64_t row, uint type, uint i) {
    if (type == 0) return Floats(row).at[i];
    const uint word = Words(row).at[i >> 1];
    if (type == 2) return HalvesOf(word)[i & 1];
    return uintBitsToFloat((i & 1) != 0 ? word & 0xffff0000u : word << 16);
}

float ColumnOf(uint64_t column, uint c) {
    return Floats(column + uint64_t(c) * kColumnBytes).at[0];
}

// The expert of a slot; a.experts: another rank has it. Without experts, 0.
uint ExpertOf(uint slot) {
    return a.used == 0 ? 0 : min(uint(Ints(a.ids).at[slot]) - a.first_expert, a.experts);
}

#ifdef DOWN
void main() {
    const uint slot = gl_WorkGroupID.y;
    const uint t = a.used == 0 ? slot : slot / a.used;
    const uint found = PairOf(t), expert = ExpertOf(slot);
    if (found == a.count || (a.used != 0 && expert == a.experts)) return;
    const Pair pair = Pairs(a.pairs).at[found];
    if (pair.a == 0) return;
    const uint lane = gl_LocalInvocationIndex;
    const uint64_t x = a.x + uint64_t(a.by_token != 0 ? t : slot) * a.cols * 4;
    for (uint r = gl_WorkGroupID.x; r < pair.rank; r += gl_NumWorkGroups.x) {
        const uint64_t row = pair.a + (uint64_t(expert) * pair.rank + r) * pair.a_row_bytes;
        precise float own = 0;
        for (uint i = lane; i < a.cols; i += gl_WorkGroupSize.x) {
            own = fma(Floats(x).at[i], Element(row, pair.a_type, i), own);
        }
        precise float sum = subgroupAdd(own);
        if (subgroupElect()) partial[gl_SubgroupID] = sum;
        barrier();
        if (lane == 0) {
            precise float total = 0;
            for (uint s = 0; s < gl_NumSubgroups; ++s) total = total + partial[s];
            if (pair.b != 0) {
                Floats(a.u).at[slot * a.u_stride + r] = total;
            } else {
                if (pair.shift != 0) total = total + ColumnOf(pair.shift, r);
                Floats(a.y + (uint64_t(slot) * a.n + r) * 4).at[0] = total;
            }
        }
        barrier();
    }
}
#else
float Sum(Pair pair, uint slot, uint expert, uint c) {
    precise float sum = 0;
    const uint64_t row = pair.b + (uint64_t(expert) * a.n + c) * pair.b_row_bytes;
    for (uint r = 0; r < pair.rank; ++r) {
        sum = fma(Floats(a.u).at[slot * a.u_stride + r], Element(row, pair.b_type, r), sum);
    }
    return sum;
}

void main() {
    const uint row = gl_WorkGroupID.y;  // of y
    const bool sums = a.weights != 0;
    const uint found = PairOf(a.used == 0 || sums ? row : row / a.used);
    if (found == a.count) return;
    const Pair pair = Pairs(a.pairs).at[found];
    const uint c = gl_GlobalInvocationID.x;
    if (c >= a.n || (pair.a != 0 && pair.b == 0)) return;
    const uint64_t y = a.y + (uint64_t(row) * a.n + c) * 4;
    precise float value = Floats(y).at[0];
    if (pair.gain != 0) value = value * ColumnOf(pair.gain, c);
    const uint slots = sums ? a.used : 1;
    for (uint k = 0; pair.b != 0 && k < slots; ++k) {
        const uint slot = row * slots + k, expert = ExpertOf(slot);
        if (a.used != 0 && expert == a.experts) continue;
        const float weight = sums ? Floats(a.weights).at[slot] : 1.0;
        value = value + weight * Sum(pair, slot, expert, c);
    }
    if (pair.shift != 0) value = value + ColumnOf(pair.shift, c);
    Floats(y).at[0] = value;
}
#endif
