//: find_non_finite
//: find_non_finite_end -DEND
// Finds the first element of a value that is not finite, first per workgroup, then over workgroups.
// The result is all ones if every element is finite.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Numbers { uint64_t at[]; };
layout(push_constant, scalar) uniform Args {
    uint64_t from;
    Numbers found;
    uint64_t count;
};
const uint64_t kNone = ~uint64_t(0);
shared uint64_t firsts[gl_WorkGroupSize.x];

uint64_t FirstOfGroup(uint64_t first) {
    const uint lane = gl_LocalInvocationIndex;
    firsts[lane] = first;
    for (uint half_size = gl_WorkGroupSize.x / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) firsts[lane] = min(firsts[lane], firsts[lane + half_size]);
    }
    barrier();
    return firsts[0];
}

#ifdef END
void main() {
    uint64_t first = kNone;
    for (uint i = gl_LocalInvocationIndex; i < uint(count); i += gl_WorkGroupSize.x) {
        first = min(first, Numbers(from).at[i]);
    }
    first = FirstOfGroup(first);
    if (gl_LocalInvocationIndex == 0) found.at[0] = first;
}
#else
layout(constant_id = 1) const uint kTypes = 0;
layout(constant_id = 2) const bool kWide = false;

void main() {
    uint64_t first = kNone;
    const uint64_t stride = uint64_t(gl_NumWorkGroups.x) * gl_WorkGroupSize.x * 4;
    const uint64_t begin = uint64_t(gl_GlobalInvocationID.x) * 4;
    for (uint64_t i = begin; i < count && first == kNone; i += stride) {
        const uint left = uint(min(count - i, uint64_t(4)));
        const vec4 quad = LoadQuad(from, kTypes, i, left, kWide);
        [[unroll]] for (uint k = 4; k > 0; --k) {
            const bool finite = (floatBitsToUint(quad[k - 1]) & 0x7f800000u) != 0x7f800000u;
            if (!finite) first = i + (k - 1);
        }
    }
    first = FirstOfGroup(first);
    if (gl_LocalInvocationIndex == 0) found.at[gl_WorkGroupID.x] = first;
}
#endif
