//: router_counts -DCOUNTS
//: load_balance -DBALANCE
//: load_balance_grad -DBALANCE_GRAD
// The distribution of rows over experts. load is [2, experts]: how often each expert was chosen,
// and the sum of its scores.
//     router_counts      y[e] = load[e] + the number of ids that are e: a workgroup per expert
//     load_balance       y[0] = factor * the sum over experts of count * sum, by one workgroup
//     load_balance_grad  y = zeros for the counts, dloss * factor * count for the sums
// factor = experts / rows^2, where rows = the ids counted in `load` / used, at least 1.
#version 460
#include "floats.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats load;  // router_counts: may be 0
    Ints ids;
    Floats dloss, y;
    uint count, experts, used;  // count: number of ids
};

#ifdef COUNTS
void main() {
    const uint e = gl_WorkGroupID.x;
    float own = 0;  // exact below 2^24
    for (uint i = gl_LocalInvocationIndex; i < count; i += gl_WorkGroupSize.x) {
        if (ids.at[i] == int(e)) own += 1;
    }
    const float all = SumOfGroup(own);
    if (gl_LocalInvocationIndex == 0) y.at[e] = (uint64_t(load) == 0 ? 0.0 : load.at[e]) + all;
}
#else
float Factor() {
    float own = 0;
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) own += load.at[e];
    const float rows = max(SumOfGroup(own) / float(used), 1.0);
    return float(experts) / rows / rows;
}

void main() {
    const float factor = Factor();
#ifdef BALANCE
    float own = 0;
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        own = fma(load.at[e], load.at[experts + e], own);
    }
    const float all = SumOfGroup(own);
    if (gl_LocalInvocationIndex == 0) y.at[0] = factor * all;
#else
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        y.at[e] = 0;
        y.at[experts + e] = dloss.at[0] * factor * load.at[e];
    }
#endif
}
#endif
