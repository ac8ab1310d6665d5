//: expert_plan
// The rows of each expert: slots (row * used + k) sorted by expert, and divided into blocks of at
// most `tile` slots of one expert. One workgroup.
//
//     plan  int32: number of blocks; start of the slots; [expert, first slot, slots] of each block;
//           slots
//
// The slots of an expert are in any order: their products do not depend on it.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t ids, plan;
    uint slots, first_expert, experts, tile, most_blocks;
} a;

const uint kMostExperts = 1024;
shared uint count[kMostExperts];
shared uint next[kMostExperts];

void main() {
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    for (uint e = lane; e < a.experts; e += lanes) count[e] = 0;
    barrier();
    for (uint slot = lane; slot < a.slots; slot += lanes) {
        const uint e = uint(Ints(a.ids).at[slot]) - a.first_expert;
        if (e < a.experts) atomicAdd(count[e], 1);
    }
    barrier();
    if (lane == 0) {
        uint begin = 0, blocks = 0;
        for (uint e = 0; e < a.experts; ++e) {
            next[e] = begin;
            for (uint done = 0; done < count[e]; done += a.tile) {
                Ints(a.plan).at[2 + 3 * blocks] = int(e);
                Ints(a.plan).at[3 + 3 * blocks] = int(begin + done);
                Ints(a.plan).at[4 + 3 * blocks] = int(min(count[e] - done, a.tile));
                ++blocks;
            }
            begin += count[e];
        }
        Ints(a.plan).at[0] = int(blocks);
        Ints(a.plan).at[1] = int(2 + 3 * a.most_blocks);
    }
    barrier();
    const uint slots = 2 + 3 * a.most_blocks;
    for (uint slot = lane; slot < a.slots; slot += lanes) {
        const uint e = uint(Ints(a.ids).at[slot]) - a.first_expert;
        if (e < a.experts) Ints(a.plan).at[slots + atomicAdd(next[e], 1)] = int(slot);
    }
}
