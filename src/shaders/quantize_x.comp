// Encodes rows of floats as int8 (codes.glsl), if the kernel that computes them does not. An
// invocation has four columns. Processes whole blocks: x has a multiple of 32 floats.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t x, codes, scales;
    uint blocks;
} a;

const bool kEncodes = true;
#include "codes.glsl"

void main() {
    const uint lane = gl_LocalInvocationIndex;
    const uint blocks_each = gl_WorkGroupSize.x / kBlockLanes;
    for (uint begin = gl_WorkGroupID.x * blocks_each; begin < a.blocks;
         begin += gl_NumWorkGroups.x * blocks_each) {
        const uint block = begin + lane / kBlockLanes;
        const uint four = block * kBlockLanes + lane % kBlockLanes;
        const bool inside = block < a.blocks;
        Encode(a.codes, a.scales, lane, four, inside ? Floats4(a.x).at[four] : vec4(0), inside);
    }
}
