// Floats to int8, 32 at a time: code = round(x * 127 / peak), to nearest even, scale = peak / 127,
// where peak is the largest magnitude of the 32. dot.glsl has the layout.
//
// Where one of the 32 is NaN or infinite, so is the scale NaN, and every sum that has it. A peak
// below 2^-100 counts as zero, which changes a value by that at most.
//
// An invocation has four columns. It takes whole blocks: x has a multiple of 32 floats.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t x, codes, scales;
    uint blocks;
} a;

layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Codes { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) writeonly buffer Scales {
    uvec2 at[];
};

const uint kEach = 8;  // invocations of a block
shared uint parts[gl_WorkGroupSize.x];

void main() {
    const uint lane = gl_LocalInvocationIndex, head = lane / kEach * kEach;
    const uint blocks_each = gl_WorkGroupSize.x / kEach;
    for (uint begin = gl_WorkGroupID.x * blocks_each; begin < a.blocks;
         begin += gl_NumWorkGroups.x * blocks_each) {
        const uint block = begin + lane / kEach, four = block * kEach + lane % kEach;
        const bool inside = block < a.blocks;
        const vec4 x = inside ? Floats4(a.x).at[four] : vec4(0);
        // As integers, magnitudes have the order of the floats, and NaN is the largest.
        const uvec4 size = floatBitsToUint(x) & 0x7fffffffu;
        parts[lane] = max(max(size.x, size.y), max(size.z, size.w));
        barrier();
        uint most = 0;
        [[unroll]] for (uint i = 0; i < kEach; ++i) most = max(most, parts[head + i]);
        barrier();
        const bool finite = most < 0x7f800000u, zero = most < 0x0d800000u;
        const float peak = uintBitsToFloat(finite && !zero ? most : 0x3f800000u);
        const float inverse = zero || !finite ? 0.0 : 127.0 / peak;
        const ivec4 code = finite ? clamp(ivec4(roundEven(x * inverse)), -127, 127) : ivec4(0);
        parts[lane] = uint(code.x + code.y + code.z + code.w);
        barrier();
        if (inside) {
            const uvec4 bytes = uvec4(code) & 255;
            Codes(a.codes).at[four] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
        }
        if (inside && lane == head) {
            int low = 0, high = 0;
            [[unroll]] for (uint i = 0; i < kEach / 2; ++i) {
                low += int(parts[head + i]);
                high += int(parts[head + kEach / 2 + i]);
            }
            const uint scale = !finite ? 0x7fc00000u : zero ? 0 : floatBitsToUint(peak / 127.0);
            Scales(a.scales).at[block] = uvec2(scale, uint(low) & 0xffff | uint(high) << 16);
        }
        barrier();
    }
}
