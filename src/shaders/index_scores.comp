// Scores of an indexer: for a row and each position up to its own, the sum over heads of weight *
// max(0, q . key). Only for rows that see more than `top` positions. Workgroup (tile of 32
// positions, row of the batch). Each invocation processes one position and every kGroups-th head;
// the groups' sums are added in order.
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 1) const uint kType = 1;  // of the cache
layout(constant_id = 2) const uint kDims = 128;
layout(push_constant, scalar) uniform Args {
    Floats q, weights;
    uint64_t cache;
    Floats scores;  // [rows of the batch, stride]
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint heads, top, page_tokens, stride;
    uint first_row;  // of the batch
};

const uint kKeys = 32, kGroups = kThreads / kKeys;
const uint kFours = (kDims + 3) / 4, kPitch = kFours + 1;
shared vec4 tile[kKeys * kPitch];
shared float sums[kGroups * kKeys];

vec4 Query(uint at, uint four) {
    vec4 values = vec4(0);
    for (uint i = 0; i < 4 && four * 4 + i < kDims; ++i) values[i] = q.at[at + four * 4 + i];
    return values;
}

void main() {
    const uint row = first_row + gl_WorkGroupID.y;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint keys = uint(sequence.position) + row - uint(sequence.row_begin) + 1;
    const uint first = gl_WorkGroupID.x * kKeys;
    if (keys <= top || first >= keys) return;
    for (uint i = gl_LocalInvocationIndex; i < kKeys * kFours; i += kThreads) {
        const uint key = i / kFours, four = i % kFours, position = first + key;
        vec4 values = vec4(0);
        if (position < keys) {
            const uint page = uint(pages.at[uint(sequence.first_page) + position / page_tokens]);
            const uint slot = page * page_tokens + position % page_tokens;
            values = LoadFour(cache + uint64_t(slot) * RowBytes(kType, kDims), kType, four * 4, kDims);
        }
        tile[key * kPitch + four] = values;
    }
    barrier();
    const uint key = gl_LocalInvocationIndex % kKeys, group = gl_LocalInvocationIndex / kKeys;
    float sum = 0.0;
    for (uint head = group; head < heads; head += kGroups) {
        const uint at = (row * heads + head) * kDims;
        float dot = 0.0;
        for (uint four = 0; four < kFours; ++four) {
            const vec4 k = tile[key * kPitch + four], x = Query(at, four);
            dot = fma(k.w, x.w, fma(k.z, x.z, fma(k.y, x.y, fma(k.x, x.x, dot))));
        }
        sum = fma(weights.at[row * heads + head], max(dot, 0.0), sum);
    }
    sums[gl_LocalInvocationIndex] = sum;
    barrier();
    if (group != 0 || first + key >= keys) return;
    for (uint i = 1; i < kGroups; ++i) sum += sums[i * kKeys + key];
    scores.at[gl_WorkGroupID.y * stride + first + key] = sum;
}
