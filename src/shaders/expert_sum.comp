// y[t] = base[t] + the sum over the slots of row t, in the order of their experts' ids, of
// weights[slot] * products[slot]. An invocation per element; products include their bias. y has the
// type kTypeY (element.glsl).
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypeY = 0;

layout(push_constant, scalar) uniform Args {
    uint64_t ids, weights, products, base, y;  // weights, base: may be 0
    uint n, first_expert, experts, used;
} a;

void main() {
    const uint o = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
    if (o >= a.n) return;
    precise float sum = a.base != 0 ? Floats(a.base + (uint64_t(t) * a.n + o) * 4).at[0] : 0.0;
    int last = -1;
    uint found = a.used;  // slot of the row that was added last; a row may have an expert twice
    for (uint n = 0; n < a.used; ++n) {
        int best = 0x7fffffff;
        uint next = 0;
        for (uint k = 0; k < a.used; ++k) {
            const int e = Ints(a.ids).at[t * a.used + k] - int(a.first_expert);
            const bool left = e > last || (e == last && k > found);
            if (left && e < best && e < int(a.experts)) {
                best = e;
                next = k;
            }
        }
        if (best == 0x7fffffff) break;
        last = best;
        found = next;
        const uint slot = t * a.used + found;
        const float product = Floats(a.products + uint64_t(slot) * a.n * 4).at[o];
        const float weight = a.weights != 0 ? Floats(a.weights).at[slot] : 1.0;
        sum = fma(weight, product, sum);
    }
    Store(a.y, kTypeY, uint64_t(t) * a.n + o, sum);
}
