// Part of the gradient of expert_sum, for each slot: dx = weight * product, where product is dy
// times the expert's matrix; dweight = product . x. Zeros for experts that this rank does not hold.
// A workgroup per slot.
#version 460
#include "element.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of x, dx

layout(push_constant, scalar) uniform Args {
    uint64_t products, x, ids, weights, dx, dweights;
    uint cols, slots, first_expert, experts;
} a;

void main() {
    const uint lane = gl_LocalInvocationIndex, lanes = gl_WorkGroupSize.x;
    for (uint slot = gl_WorkGroupID.x; slot < a.slots; slot += gl_NumWorkGroups.x) {
        const bool held = uint(Ints(a.ids).at[slot]) - a.first_expert < a.experts;
        const uint64_t row = uint64_t(slot) * a.cols;
        const float weight = Floats(a.weights).at[slot];
        float sum = 0;
        for (uint i = lane; i < a.cols; i += lanes) {
            float scaled = 0;
            if (held) {
                const float product = Floats(a.products + row * 4).at[i];
                sum = fma(product, Load(a.x, TypeIn(kTypes, 0), row + i), sum);
                scaled = weight * product;
            }
            Store(a.dx, TypeIn(kTypes, 1), row + i, scaled);
        }
        sum = SumOfGroup(sum);
        if (lane == 0) Floats(a.dweights).at[slot] = sum;
    }
}
