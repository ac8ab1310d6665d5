//: add_squares
//: add_squares_end -DEND
// The sum of squares of the elements of runs, as two float32 (pairs.glsl). The first shader sums
// each block; the second adds the sum over blocks to `sums`. The order depends only on sizes. A
// chain has fewer than 1,024 additions for 2^30 elements, so that the relative error is below
// 2^-28. Squares below 2^-126 may count as zeros.
#version 460
#include "element.glsl"
#include "pairs.glsl"
layout(local_size_x_id = 0) in;
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Pairs { vec2 at[]; };
shared vec2 parts[gl_WorkGroupSize.x];

vec2 SumOfPairs(vec2 own) {
    const uint lane = gl_LocalInvocationIndex;
    barrier();  // the previous block's values have been read
    parts[lane] = own;
    for (uint half_size = gl_WorkGroupSize.x / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (lane < half_size) parts[lane] = AddPairs(parts[lane], parts[lane + half_size]);
    }
    barrier();
    return parts[0];
}

#ifdef END
layout(constant_id = 1) const bool kSingle = false;  // sums: one float32
layout(push_constant, scalar) uniform Args {
    Pairs blocks, sums;
    uint count;
};
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Single { float sum; };

void main() {
    vec2 own = vec2(0);
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
        own = AddPairs(own, blocks.at[i]);
    }
    own = SumOfPairs(own);
    if (gl_LocalInvocationIndex != 0) return;
    if (kSingle) {
        Single single = Single(uint64_t(sums));
        single.sum = AddPairs(vec2(single.sum, 0), own).x;
    } else {
        sums.at[0] = AddPairs(sums.at[0], own);
    }
}
#else
layout(constant_id = 1) const uint kTypes = 0;
layout(constant_id = 2) const bool kWide = false;
#include "update.glsl"
layout(push_constant, scalar) uniform Args {
    uint64_t x;
    UpdateRuns runs;
    Pairs sums;
    uint run_count, blocks;
};

void main() {
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        const UpdateRun run = RunOf(runs, run_count, block);
        const uint64_t first = uint64_t(block - run.first_block) * kUpdateBlock;
        const uint count = uint(min(run.count - first, uint64_t(kUpdateBlock)));
        const bool wide = kWide && run.begin % 4 == 0;
        vec2 own = vec2(0);
        for (uint i = 4 * gl_LocalInvocationIndex; i < count; i += 4 * gl_WorkGroupSize.x) {
            const vec4 quad = LoadQuad(x, kTypes, run.begin + first + i, count - i, wide);
            own = AddSquareTo(AddSquareTo(own, quad.x), quad.y);
            own = AddSquareTo(AddSquareTo(own, quad.z), quad.w);
        }
        own = SumOfPairs(own);
        if (gl_LocalInvocationIndex == 0) sums.at[block] = own;
    }
}
#endif
