//: column_sums
//: column_sums_end -DEND
// Sums over rows of each column, in an order that depends only on sizes. First per block of rows:
//     sums[block][c] = the sum over the block's rows of dy[row][c], or of dy * x *
//                      inverse[row] (kScales), or of dy * (x - mean) * inverse with these numbers
//                      of each group of `group` columns (kNorms)
// in workgroups (columns, block), where kLanes invocations span columns and the others share the
// rows; then
//     y[c] = from[c] + the sum over blocks, in order
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;

#ifdef END
layout(constant_id = 1) const uint kTypes = 0;  // of from, y
layout(push_constant, scalar) uniform Args {
    Floats sums;
    uint64_t from, y;           // from: may be 0
    uint blocks, stride, cols;  // stride: from one block's sums to the next
};

void main() {
    const uint c = gl_GlobalInvocationID.x;
    if (c >= cols) return;
    precise float sum = 0;
    for (uint b = 0; b < blocks; ++b) sum = sum + sums.at[b * stride + c];
    if (from != 0) sum = sum + Load(from, TypeIn(kTypes, 0), c);
    Store(y, TypeIn(kTypes, 1), c, sum);
}
#else
layout(constant_id = 1) const uint kFactor = 0;  // kNone, kScales or kNorms
layout(constant_id = 2) const uint kTypes = 0;   // of dy, x
layout(constant_id = 3) const bool kWide = false;
layout(constant_id = 4) const uint kLanes = 1;  // invocations that span columns, a quad each
layout(push_constant, scalar) uniform Args {
    uint64_t dy, x;
    Floats inverse, means;  // means: 0 if absent
    uint64_t sums;
    uint rows, cols, block_rows, stride;  // stride: a multiple of 4
    uint group;
};
const uint kNone = 0, kScales = 1, kNorms = 2;
shared vec4 parts[gl_WorkGroupSize.x];

// The normed elements of x: columns c to c + 3 of a row.
vec4 Normed(uint row, uint c, vec4 quad) {
    const uint groups = cols / group;
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        const uint unit = row * groups + min(c + k, cols - 1) / group;
        if (uint64_t(means) != 0) quad[k] -= means.at[unit];
        quad[k] *= inverse.at[unit];
    }
    return quad;
}

void main() {
    const uint lane = gl_LocalInvocationIndex, turn = gl_WorkGroupSize.x / kLanes;
    const uint c = 4 * (gl_WorkGroupID.x * kLanes + lane % kLanes);
    const uint begin = gl_WorkGroupID.y * block_rows, end = min(begin + block_rows, rows);
    precise vec4 own = vec4(0);
    for (uint row = begin + lane / kLanes; row < end && c < cols; row += turn) {
        const uint64_t at = uint64_t(row) * cols + c;
        precise vec4 value = LoadQuad(dy, TypeIn(kTypes, 0), at, cols - c, kWide);
        if (kFactor != kNone) {
            const vec4 of_x = LoadQuad(x, TypeIn(kTypes, 1), at, cols - c, kWide);
            value =
                kFactor == kScales ? value * of_x * inverse.at[row] : value * Normed(row, c, of_x);
        }
        own = own + value;
    }
    parts[lane] = own;
    barrier();
    if (lane >= kLanes || c >= cols) return;
    for (uint i = 1; i < turn; ++i) own = own + parts[i * kLanes + lane];
    FloatQuad(sums + (uint64_t(gl_WorkGroupID.y) * stride + c) * 4).all = own;
}
#endif
