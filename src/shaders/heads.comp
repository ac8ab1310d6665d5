// The steps between the q, k and v projections and attention, in one kernel: norms of heads, RoPE,
// and the writes of k and v to their cache. Workgroup (head, row), with heads of q, then k, then v.
// Gives the bits of norm.comp, rope.comp and kv_write.comp with workgroups of the same size.
#version 460
#include "cache.glsl"
#include "norm.glsl"
#include "reduce.glsl"
#include "rope.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 2) const uint kHeadDim = 64;
layout(constant_id = 3) const uint kPairs = 0;
layout(constant_id = 4) const bool kNeighbours = false;
layout(constant_id = 5) const uint kParts = 0;  // HeadParts of lower/fused.cc
layout(constant_id = 6) const uint kPageTokens = 64;
layout(constant_id = 7) const uint kEps = 0;  // as bits
// If the sums of squares of a norm over all heads of q (or k) are given: the norm's number of
// columns over all ranks. 0: a norm per head.
layout(constant_id = 8) const uint kWholeQuery = 0;
layout(constant_id = 9) const uint kWholeKey = 0;
layout(constant_id = 10) const uint kValueType = 0;  // of v_cache; kType: of k_cache
layout(push_constant, scalar) uniform Args {
    Floats q, k, v, to;         // to: destination of the heads of q
    Floats q_weight, k_weight;  // of norms; v's norm has no weight
    uint64_t k_cache, v_cache;
    Ints positions;
    Angles fine, coarse;
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    Floats squares;  // per row: sum of squares of q, then of k
    uint heads, kv_heads;
};

const uint kNormed = 1, kRotated = 8;  // for q; << 1 for k, << 2 for v

shared float elements[kHeadDim];
float Source(uint row, uint head, uint d) {
    return elements[d];
}

#include "cache_rows.glsl"

float SumOfSquares() {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < kHeadDim; i += gl_WorkGroupSize.x) {
        sum = fma(elements[i], elements[i], sum);
    }
    return SumOfGroup(sum);
}

void Norm(uint which, uint row, uint head) {
    const uint whole = which == 0 ? kWholeQuery : which == 1 ? kWholeKey : 0;
    const float sum = whole != 0 ? squares.at[row * 2 + which] : SumOfSquares();
    const float columns = whole != 0 ? float(whole) : float(kHeadDim);
    const float scale = InverseRms(sum, columns, uintBitsToFloat(kEps));
    const uint first = whole != 0 ? head * kHeadDim : 0;
    Floats weight = which == 0 ? q_weight : k_weight;
    for (uint i = gl_LocalInvocationIndex; i < kHeadDim; i += gl_WorkGroupSize.x) {
        precise float value = elements[i] * scale;
        if (which < 2) value = value * weight.at[first + i];
        elements[i] = value;
    }
}

void Rope(uint position) {
    for (uint i = gl_LocalInvocationIndex; i < kPairs; i += gl_WorkGroupSize.x) {
        const uint at = kNeighbours ? 2 * i : i, other = kNeighbours ? at + 1 : at + kPairs;
        const vec2 turned = Rotate(vec2(elements[at], elements[other]),
                                   AngleOf(fine, coarse, position, kPairs, i));
        elements[at] = turned.x;
        elements[other] = turned.y;
    }
}

void main() {
    const uint row = gl_WorkGroupID.y, unit = gl_WorkGroupID.x;
    const uint which = unit < heads ? 0 : unit < heads + kv_heads ? 1 : 2;
    const uint head = which == 0 ? unit : (unit - heads) % kv_heads;
    Floats from = which == 0 ? q : which == 1 ? k : v;
    const uint begin = (row * (which == 0 ? heads : kv_heads) + head) * kHeadDim;
    for (uint i = gl_LocalInvocationIndex; i < kHeadDim; i += gl_WorkGroupSize.x) {
        elements[i] = from.at[begin + i];
    }
    if ((kParts & kNormed << which) != 0) Norm(which, row, head);
    barrier();
    if ((kParts & kRotated << which) != 0) Rope(uint(positions.at[row]));
    barrier();
    if (which == 0) {
        for (uint i = gl_LocalInvocationIndex; i < kHeadDim; i += gl_WorkGroupSize.x) {
            to.at[begin + i] = elements[i];
        }
        return;
    }
    const CacheSlot slot = SlotOf(sequences.at[row_sequence.at[row]], pages, row, kPageTokens);
    const uint type = kType == kValueType || which == 1 ? kType : kValueType;
    const uint64_t cache = AddressOf(which == 1 ? k_cache : v_cache, type, slot, head, kv_heads,
                                     kPageTokens, kHeadDim);
    const uint elements = ElementsOf(type);
    for (uint i = gl_LocalInvocationIndex; i < kHeadDim / elements; i += gl_WorkGroupSize.x) {
        Store(cache, type, row, head, i * elements);
    }
}
