//: adapt_down -DDOWN
//: adapt_up -DUP
// LoRA adapters on a matrix product, in the rows of sequences that use one:
//     down  u[t][r] = x[t] . a[r]         a workgroup for each r (x) and row (y)
//     up    y[t][c] += u[t] . b[c]        an invocation for each c
// Other rows, and rows whose adapter has no matrices here, are not touched.
#version 460
#include "head.glsl"
#include "halves.glsl"
#include "sequences.glsl"

struct Pair {
    uint64_t a, b;
    uint a_row_bytes, b_row_bytes;
    int adapter;
    uint rank;
    uint a_type, b_type;  // 0: F32, 1: BF16, 2: F16
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Pairs { Pair at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint at[]; };

layout(push_constant, scalar) uniform Args {
    uint64_t x, u, y;
    uint64_t pairs, row_sequence, sequences;
    uint count, rows, cols, n, u_stride;
} a;

const uint kMostSubgroups = 32;
shared float partial[kMostSubgroups];

// The row's pair of matrices; a.count: none.
uint PairOf(uint row) {
    const int sequence = Ints(a.row_sequence).at[row];
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

void main() {
    const uint t = gl_WorkGroupID.y;
    const uint found = PairOf(t);
    if (found == a.count) return;
    const Pair pair = Pairs(a.pairs).at[found];
#ifdef DOWN
    const uint lane = gl_LocalInvocationIndex;
    const uint r = gl_WorkGroupID.x;
    if (r >= pair.rank) return;
    const uint64_t row = pair.a + uint64_t(r) * pair.a_row_bytes;
    const uint64_t x = a.x + uint64_t(t) * a.cols * 4;
    precise float own = 0;
    for (uint i = lane; i < a.cols; i += gl_WorkGroupSize.x) {
        own = fma(Floats(x).at[i], Element(row, pair.a_type, i), own);
    }
    precise float sum = subgroupAdd(own);
    if (subgroupElect()) partial[gl_SubgroupID] = sum;
    barrier();
    if (lane != 0) return;
    precise float total = 0;
    for (uint s = 0; s < gl_NumSubgroups; ++s) total = total + partial[s];
    Floats(a.u).at[t * a.u_stride + r] = total;
#else
    const uint c = gl_GlobalInvocationID.x;
    if (c >= a.n) return;
    const uint64_t row = pair.b + uint64_t(c) * pair.b_row_bytes;
    precise float sum = 0;
    for (uint r = 0; r < pair.rank; ++r) {
        sum = fma(Floats(a.u).at[t * a.u_stride + r], Element(row, pair.b_type, r), sum);
    }
    const uint64_t y = a.y + (uint64_t(t) * a.n + c) * 4;
    Floats(y).at[0] = Floats(y).at[0] + sum;
#endif
}
