// For each row of logits: the largest, the sum of exp(logit - largest), and the target's logit,
// which is 0 if the target is negative or not in [first_row, first_row + cols). With `each` 4, also
// the sum of the logits. A workgroup processes a row at a time. NaN and infinity make the sum of
// exp NaN.
#version 460
#include "element.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of logits
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t logits;
    Ints targets;
    Floats stats;
    uint rows, cols;
    int first_row;
    uint each;
};

float SumOfRow(uint64_t begin) {
    precise float sum = 0;
    const uint stride = 4 * gl_WorkGroupSize.x;
    for (uint c = 4 * gl_LocalInvocationIndex; c < cols; c += stride) {
        const vec4 quad = LoadQuad(logits, kTypes, begin + c, cols - c, kWide);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (k < cols - c) sum = sum + quad[k];
        }
    }
    return SumOfGroup(sum);
}

void Row(uint row) {
    const uint64_t begin = uint64_t(row) * cols;
    const uint first = 4 * gl_LocalInvocationIndex, stride = 4 * gl_WorkGroupSize.x;
    float most = uintBitsToFloat(0xff800000u);  // -infinity
    for (uint c = first; c < cols; c += stride) {
        const vec4 quad = LoadQuad(logits, kTypes, begin + c, cols - c, kWide);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (k < cols - c && quad[k] > most) most = quad[k];
        }
    }
    most = MaxOfGroup(most);
    precise float sum = 0;
    for (uint c = first; c < cols; c += stride) {
        const vec4 quad = LoadQuad(logits, kTypes, begin + c, cols - c, kWide);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (k < cols - c) sum = sum + (IsNan(quad[k]) ? quad[k] : exp(quad[k] - most));
        }
    }
    const bool infinite = floatBitsToUint(most) == 0x7f800000u;
    const float all = SumOfGroup(sum);
    const float whole = infinite ? uintBitsToFloat(0x7fc00000u) : all;
    const float plain = each > 3 ? SumOfRow(begin) : 0.0;
    if (gl_LocalInvocationIndex != 0) return;
    const int target = targets.at[row], at = target - first_row;
    const bool here = target >= 0 && at >= 0 && uint(at) < cols;
    stats.at[each * row] = most;
    stats.at[each * row + 1] = whole;
    stats.at[each * row + 2] = here ? Load(logits, kTypes, begin + uint(at)) : 0.0;
    if (each > 3) stats.at[each * row + 3] = plain;
}

void main() {
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) Row(row);
}
