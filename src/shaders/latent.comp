// The steps between the projections of latent attention and attention, in one kernel: rotates the
// RoPE columns of each head of q; norms the latent and rotates the key of kv, and writes both to
// their row of the cache. Workgroup (head, row), with the row of kv after the heads of q. Gives the
// bits of copy_columns.comp, norm.comp, rope.comp and kv_write.comp with workgroups of norm.comp's
// size.
#version 460
#include "cache.glsl"
#include "norm.glsl"
#include "reduce.glsl"
#include "rope.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 2) const uint kRank = 64;     // columns of the latent
layout(constant_id = 3) const uint kTurned = 16;   // rotated columns of the key, and of a head of q
layout(constant_id = 4) const bool kNeighbours = false;
layout(constant_id = 5) const uint kPageTokens = 64;
layout(push_constant, scalar) uniform Args {
    Floats q, kv, to;  // to: destination of the heads of q
    Floats weight;
    uint64_t cache;
    Ints positions;
    Angles fine, coarse;
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint heads, q_cols, q_begin;  // q_cols: per head; q_begin: first rotated column
    uint kv_cols, latent_begin, key_begin;
    float eps;
};

shared float elements[kRank + kTurned];
float Source(uint row, uint head, uint d) {
    return elements[d];
}

#include "cache_rows.glsl"

void Load(Floats from, uint begin, uint at, uint count) {
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
        elements[at + i] = from.at[begin + i];
    }
}

void Norm() {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < kRank; i += gl_WorkGroupSize.x) {
        sum = fma(elements[i], elements[i], sum);
    }
    const float scale = InverseRms(SumOfGroup(sum), float(kRank), eps);
    for (uint i = gl_LocalInvocationIndex; i < kRank; i += gl_WorkGroupSize.x) {
        precise float value = elements[i] * scale;
        value = value * weight.at[i];
        elements[i] = value;
    }
}

// Rotates elements [begin, begin + kTurned).
void Rope(uint begin, uint position) {
    barrier();
    const uint pairs = kTurned / 2;
    for (uint i = gl_LocalInvocationIndex; i < pairs; i += gl_WorkGroupSize.x) {
        const uint at = begin + (kNeighbours ? 2 * i : i);
        const uint other = kNeighbours ? at + 1 : at + pairs;
        const vec2 turned = Rotate(vec2(elements[at], elements[other]),
                                   AngleOf(fine, coarse, position, pairs, i));
        elements[at] = turned.x;
        elements[other] = turned.y;
    }
    barrier();
}

void main() {
    const uint row = gl_WorkGroupID.y, unit = gl_WorkGroupID.x;
    const uint position = uint(positions.at[row]);
    if (unit < heads) {
        const uint head = row * heads + unit;
        Load(q, head * q_cols + q_begin, 0, kTurned);
        Rope(0, position);
        for (uint i = gl_LocalInvocationIndex; i < kTurned; i += gl_WorkGroupSize.x) {
            to.at[head * kTurned + i] = elements[i];
        }
        return;
    }
    Load(kv, row * kv_cols + latent_begin, 0, kRank);
    Load(kv, row * kv_cols + key_begin, kRank, kTurned);
    Norm();
    Rope(kRank, position);
    const uint columns = kRank + kTurned;
    const CacheSlot slot = SlotOf(sequences.at[row_sequence.at[row]], pages, row, kPageTokens);
    const uint64_t place = AddressOf(cache, kType, slot, 0, 1, kPageTokens, columns);
    const uint elements = ElementsOf(kType);
    for (uint i = gl_LocalInvocationIndex; i < columns / elements; i += gl_WorkGroupSize.x) {
        Store(place, kType, row, 0, i * elements);
    }
}
