// The plan of products with experts: slots (row * used + k) sorted by expert and then by slot,
// divided into blocks of at most `tile`. Slots of experts that this rank does not hold come last,
// as expert number `experts`.
//
//     plan  int32: number of blocks; start of the slots; start of the experts' first slots; number
//           of experts; [expert, first slot, slots] of each block; slots; each expert's first slot
//           [experts + 1]
//
// Workgroup x handles an expert, or all experts that are not held. An invocation counts a run of
// slots, then places it.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t ids, plan;
    uint slots, first_expert, experts, tile, most_blocks;
} a;

const uint kMostExperts = 1024;
shared uint count[kMostExperts + 1];
shared uint own[gl_WorkGroupSize.x];

uint ExpertOf(uint slot) { return min(uint(Ints(a.ids).at[slot]) - a.first_expert, a.experts); }

void main() {
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    const uint expert = gl_WorkGroupID.x;
    for (uint e = lane; e <= a.experts; e += lanes) count[e] = 0;
    barrier();
    const uint each = (a.slots + lanes - 1) / lanes;
    const uint begin = min(a.slots, lane * each), end = min(a.slots, begin + each);
    uint mine = 0;
    for (uint slot = begin; slot < end; ++slot) {
        const uint e = ExpertOf(slot);
        atomicAdd(count[e], 1);
        if (e == expert) ++mine;
    }
    own[lane] = mine;
    barrier();
    uint first = 0, block = 0;
    for (uint e = 0; e < expert; ++e) {
        first += count[e];
        block += (count[e] + a.tile - 1) / a.tile;
    }
    const uint slots_at = 4 + 3 * a.most_blocks, begins_at = slots_at + a.slots;
    uint to = slots_at + first;
    for (uint i = 0; i < lane; ++i) to += own[i];
    for (uint slot = begin; slot < end; ++slot) {
        if (ExpertOf(slot) == expert) Ints(a.plan).at[to++] = int(slot);
    }
    const uint blocks = (count[expert] + a.tile - 1) / a.tile;
    for (uint i = lane; i < blocks; i += lanes) {
        const uint at = 4 + 3 * (block + i);
        Ints(a.plan).at[at] = int(expert);
        Ints(a.plan).at[at + 1] = int(first + i * a.tile);
        Ints(a.plan).at[at + 2] = int(min(count[expert] - i * a.tile, a.tile));
    }
    if (lane != 0) return;
    Ints(a.plan).at[begins_at + expert] = int(first);
    if (expert != a.experts) return;
    Ints(a.plan).at[0] = int(block + blocks);
    Ints(a.plan).at[1] = int(slots_at);
    Ints(a.plan).at[2] = int(begins_at);
    Ints(a.plan).at[3] = int(a.experts);
}
