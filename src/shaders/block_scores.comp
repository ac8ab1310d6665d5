// Scores of an indexer of blocks: for a row, a head and a block of positions, the highest q . key.
// Only for rows that see more than `top` blocks, and for blocks that are not always chosen.
// Workgroup (block, row of the batch). Each invocation processes every 32nd position and every
// kGroups-th head.
#version 460
#include "cache.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint kThreads = 128;
layout(constant_id = 1) const uint kType = 1;  // of the cache
layout(constant_id = 2) const uint kDims = 128;
layout(constant_id = 3) const uint kHeads = 4;
layout(push_constant, scalar) uniform Args {
    Floats q;
    uint64_t cache;
    Floats scores;  // [rows of the batch, heads, stride]
    Ints row_sequence;
    Sequences sequences;
    Ints pages;
    uint top, block, local, page_tokens, stride;
    uint first_row;  // of the batch
};

const float kLeast = -3.402823466e38;
const uint kKeys = 32, kGroups = kThreads / kKeys;
const uint kFours = (kDims + 3) / 4, kPitch = kFours + 1;
const uint kOwnHeads = (kHeads + kGroups - 1) / kGroups;
shared vec4 tile[kKeys * kPitch];
shared float highest[kThreads];

vec4 Query(uint at, uint four) {
    vec4 values = vec4(0);
    for (uint i = 0; i < 4 && four * 4 + i < kDims; ++i) values[i] = q.at[at + four * 4 + i];
    return values;
}

void LoadTile(uint first, uint count, uint first_page) {
    for (uint i = gl_LocalInvocationIndex; i < kKeys * kFours; i += kThreads) {
        const uint key = i / kFours, four = i % kFours, position = first + key;
        vec4 values = vec4(0);
        if (key < count) {
            const uint page = uint(pages.at[first_page + position / page_tokens]);
            const uint slot = page * page_tokens + position % page_tokens;
            values = LoadFour(cache + uint64_t(slot) * RowBytes(kType, kDims), kType, four * 4, kDims);
        }
        tile[key * kPitch + four] = values;
    }
}

void main() {
    const uint row = first_row + gl_WorkGroupID.y, own = gl_WorkGroupID.x;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint position = uint(sequence.position) + row - uint(sequence.row_begin);
    const uint blocks = position / block + 1;
    if (blocks <= top || own + local >= blocks) return;
    const uint key = gl_LocalInvocationIndex % kKeys, group = gl_LocalInvocationIndex / kKeys;
    float best[kOwnHeads];
    for (uint i = 0; i < kOwnHeads; ++i) best[i] = kLeast;
    for (uint first = 0; first < block; first += kKeys) {
        const uint count = min(kKeys, block - first);
        barrier();
        LoadTile(own * block + first, count, uint(sequence.first_page));
        barrier();
        if (key >= count) continue;
        for (uint i = 0; i < kOwnHeads; ++i) {
            const uint head = group + i * kGroups;
            if (head >= kHeads) break;
            const uint at = (row * kHeads + head) * kDims;
            float dot = 0.0;
            for (uint four = 0; four < kFours; ++four) {
                const vec4 k = tile[key * kPitch + four], x = Query(at, four);
                dot = fma(k.w, x.w, fma(k.z, x.z, fma(k.y, x.y, fma(k.x, x.x, dot))));
            }
            best[i] = max(best[i], dot);
        }
    }
    for (uint i = 0; i < kOwnHeads; ++i) {
        barrier();
        highest[gl_LocalInvocationIndex] = best[i];
        barrier();
        const uint head = group + i * kGroups;
        if (key != 0 || head >= kHeads) continue;
        float most = kLeast;
        for (uint other = 0; other < kKeys; ++other) most = max(most, highest[group * kKeys + other]);
        scores.at[(gl_WorkGroupID.y * kHeads + head) * stride + own] = most;
    }
}
