// Scores of an indexer of blocks: for a row, a head and a block of positions, the highest q . key,
// in scores [rows of the turn, heads, stride]. Skips rows that see at most `top` blocks, and blocks
// that are always chosen. Workgroup (block, row of the turn). Each invocation processes every 32nd
// position and every kGroups-th head.
#version 460
#include "index_tile.glsl"
layout(constant_id = 3) const uint kHeads = 4;

const float kLeast = -3.402823466e38;
const uint kOwnHeads = (kHeads + kGroups - 1) / kGroups;
shared float highest[kThreads];

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
            best[i] = max(best[i], Product((row * kHeads + head) * kDims, key));
        }
    }
    for (uint i = 0; i < kOwnHeads; ++i) {
        barrier();
        highest[gl_LocalInvocationIndex] = best[i];
        barrier();
        const uint head = group + i * kGroups;
        if (key != 0 || head >= kHeads) continue;
        float most = kLeast;
        for (uint other = 0; other < kKeys; ++other)
            most = max(most, highest[group * kKeys + other]);
        scores.at[(gl_WorkGroupID.y * kHeads + head) * stride + own] = most;
    }
}
