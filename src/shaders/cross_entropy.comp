//: cross_entropy
//: cross_entropy_grad -DGRAD
// The loss of each row, log(sum) + most - chosen; and its gradient, in place of the logits:
//     dloss * (exp(logit - most) / sum - (the target is here))
// A negative target gives zeros. For the loss, an invocation handles a row. For the gradient, it
// handles a quad, in workgroups (rows, columns).
#version 460
#include "element.glsl"
#include "stats.glsl"
layout(local_size_x_id = 0) in;
#ifndef GRAD
layout(push_constant, scalar) uniform Args {
    Floats stats;
    Ints targets;
    Floats losses;
    uint rows, ranks;
};

void main() {
    const uint row = gl_GlobalInvocationID.x;
    if (row >= rows) return;
    const Softmax all = SoftmaxOf(stats, row, ranks);
    losses.at[row] = targets.at[row] < 0 ? 0.0 : Log(all.sum) + (all.most - all.chosen);
}
#else
layout(constant_id = 1) const uint kTypes = 0;  // of logits
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t logits;
    Floats dloss, stats;
    Ints targets;
    uint rows, cols, ranks;
    int first_row;
};

void main() {
    const uint c = 4 * (gl_WorkGroupID.y * gl_WorkGroupSize.x + gl_LocalInvocationIndex);
    if (c >= cols) return;
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        const int target = targets.at[row];
        const uint64_t at = uint64_t(row) * cols + c;
        vec4 slope = vec4(0);
        if (target >= 0) {
            const Softmax all = SoftmaxOf(stats, row, ranks);
            const float factor = dloss.at[row] / all.sum;
            slope = factor * exp(LoadQuad(logits, kTypes, at, cols - c, kWide) - all.most);
            const int here = target - first_row - int(c);
            [[unroll]] for (int k = 0; k < 4; ++k) {
                if (here == k) slope[k] -= dloss.at[row];
            }
        }
        StoreQuad(logits, kTypes, at, cols - c, kWide, slope);
    }
}
#endif
