// Scores of an indexer: for a row and each position up to its own, or each window that ends by
// then, the sum over heads of weight * max(0, q . key), in scores [rows of the turn, stride]. Skips
// rows that see at most `top` keys. Workgroup (tile of 32 keys, row of the turn). Each invocation
// processes one key and every kGroups-th head; the groups' sums are added in order.
#version 460
#include "index_tile.glsl"

shared float sums[kGroups * kKeys];

void main() {
    const uint row = first_row + gl_WorkGroupID.y;
    const SequenceEntry sequence = sequences.at[row_sequence.at[row]];
    const uint keys = (uint(sequence.position) + row - uint(sequence.row_begin) + 1) / kStride;
    const uint first = gl_WorkGroupID.x * kKeys;
    if (keys <= top || first >= keys) return;
    LoadTile(first, keys - first, uint(sequence.first_page));
    barrier();
    const uint key = gl_LocalInvocationIndex % kKeys, group = gl_LocalInvocationIndex / kKeys;
    float sum = 0.0;
    for (uint head = group; head < heads; head += kGroups) {
        const float dot = Product((row * heads + head) * kDims, key);
        sum = fma(weights.at[row * heads + head], max(dot, 0.0), sum);
    }
    sums[gl_LocalInvocationIndex] = sum;
    barrier();
    if (group != 0 || first + key >= keys) return;
    for (uint i = 1; i < kGroups; ++i) sum += sums[i * kKeys + key];
    scores.at[gl_WorkGroupID.y * stride + first + key] = sum;
}
