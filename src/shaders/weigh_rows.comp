//: weigh_rows
//: weigh_rows_grad -DGRAD
// A slot is token * used + k.
// weigh_rows: y[slot] = weights[slot] * x[token of slot], and rest[slot] = 1. An invocation per
// element; workgroup (columns, slot).
// weigh_rows_grad: dx[token] = the sum of weights[slot] * dy[slot] in the order of k, and
// dweights[slot] = dy[slot] . x[token]; zeros for experts that this rank does not hold. A workgroup
// processes a token at a time.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of x, y; or of dy, x, dx

#ifdef GRAD
#include "reduce.glsl"
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t dy, x, dx;
    Ints ids;
    Floats weights, dweights;
    uint tokens, cols, used, first_expert, experts;
};

bool Held(uint slot) {
    return uint(ids.at[slot]) - first_expert < experts;
}

void main() {
    for (uint token = gl_WorkGroupID.x; token < tokens; token += gl_NumWorkGroups.x) {
        const uint first = token * used;
        const uint64_t row = uint64_t(token) * cols;
        for (uint slot = first; slot < first + used; ++slot) {
            const uint64_t begin = uint64_t(slot) * cols;
            float own = 0;
            if (Held(slot)) {
                for (uint c = 4 * gl_LocalInvocationIndex; c < cols; c += 4 * gl_WorkGroupSize.x) {
                    own += dot(LoadQuad(dy, TypeIn(kTypes, 0), begin + c, cols - c, kWide),
                               LoadQuad(x, TypeIn(kTypes, 1), row + c, cols - c, kWide));
                }
            }
            const float sum = SumOfGroup(own);
            if (gl_LocalInvocationIndex == 0) dweights.at[slot] = sum;
        }
        for (uint c = 4 * gl_LocalInvocationIndex; c < cols; c += 4 * gl_WorkGroupSize.x) {
            vec4 sum = vec4(0);
            for (uint slot = first; slot < first + used; ++slot) {
                if (!Held(slot)) continue;
                const uint64_t begin = uint64_t(slot) * cols;
                const vec4 quad = LoadQuad(dy, TypeIn(kTypes, 0), begin + c, cols - c, kWide);
                sum = fma(vec4(weights.at[slot]), quad, sum);
            }
            StoreQuad(dx, TypeIn(kTypes, 2), row + c, cols - c, kWide, sum);
        }
    }
}
#else
layout(push_constant, scalar) uniform Args {
    uint64_t x;
    Floats weights;
    uint64_t y;
    Floats rest;
    uint cols, used, slots;
};

void main() {
    const uint column = gl_GlobalInvocationID.x;
    for (uint slot = gl_WorkGroupID.y; slot < slots; slot += gl_NumWorkGroups.y) {
        if (column == 0) rest.at[slot] = 1.0;
        if (column >= cols) continue;
        const float value = Load(x, TypeIn(kTypes, 0), uint64_t(slot / used) * cols + column);
        Store(y, TypeIn(kTypes, 1), uint64_t(slot) * cols + column, weights.at[slot] * value);
    }
}
#endif
