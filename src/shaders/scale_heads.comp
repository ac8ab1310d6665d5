//: scale_heads
//: scale_heads_grad -DGRAD
// scale_heads: y = x times slope[head] * log(position + 1) + offset[head]. Workgroup (columns,
// row).
// scale_heads_grad: a row's addends to the gradients of offset, s = dy . x of the head, and of
// slope, s * log(position + 1). A workgroup processes one head of one row at a time.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of x, y; or of dy, x

#ifdef GRAD
#include "reduce.glsl"
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t dy, x;  // [rows, heads * dims]
    Ints positions;
    Floats dslope, doffset;   // [rows, heads]
    uint units, heads, dims;  // units: rows * heads
};

void main() {
    for (uint unit = gl_WorkGroupID.x; unit < units; unit += gl_NumWorkGroups.x) {
        const uint64_t begin = uint64_t(unit) * dims;
        float own = 0;
        for (uint c = 4 * gl_LocalInvocationIndex; c < dims; c += 4 * gl_WorkGroupSize.x) {
            own += dot(LoadQuad(dy, TypeIn(kTypes, 0), begin + c, dims - c, kWide),
                       LoadQuad(x, TypeIn(kTypes, 1), begin + c, dims - c, kWide));
        }
        const float sum = SumOfGroup(own);
        if (gl_LocalInvocationIndex == 0) {
            doffset.at[unit] = sum;
            dslope.at[unit] = sum * Log(float(positions.at[unit / heads] + 1));
        }
    }
}
#else
layout(push_constant, scalar) uniform Args {
    uint64_t x;  // [rows, cols]
    Ints positions;
    Floats slope, offset;  // [heads]
    uint64_t y;
    uint cols, heads;
};

void main() {
    const uint column = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (column >= cols) return;
    const uint head = column / (cols / heads);
    const float grown = log(float(positions.at[row]) + 1.0);
    const uint64_t at = uint64_t(row) * cols + column;
    const float factor = slope.at[head] * grown + offset.at[head];
    Store(y, TypeIn(kTypes, 1), at, Load(x, TypeIn(kTypes, 0), at) * factor);
}
#endif
