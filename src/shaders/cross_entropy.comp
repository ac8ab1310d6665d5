//: cross_entropy
//: cross_entropy_grad -DGRAD
// The loss of each row (tensor/loss_terms.h), and whether no logit is larger than the target's; and
// the loss's gradient, in place of the logits:
//     dloss * (exp(logit - most) / sum * (1 + 2 z_loss lse) - share
//              - (the target is here) * (1 - smoothing))
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
    Floats losses, hits;
    Terms terms;
    uint rows;
};

void main() {
    const uint row = gl_GlobalInvocationID.x;
    if (row >= rows) return;
    const bool counts = targets.at[row] >= 0;
    const Softmax all = SoftmaxOf(stats, row, terms);
    float loss = Log(all.sum) + (all.most - all.chosen);
    if (terms.smoothing != 0) loss += terms.smoothing * all.chosen - terms.share * all.logits;
    if (terms.z_loss != 0) {
        const float lse = Log(all.sum) + all.most;
        loss += terms.z_loss * lse * lse;
    }
    losses.at[row] = counts ? loss : 0.0;
    hits.at[row] = counts && all.chosen >= all.most ? 1.0 : 0.0;
}
#else
layout(constant_id = 1) const uint kTypes = 0;  // of logits
layout(constant_id = 2) const bool kWide = false;
layout(push_constant, scalar) uniform Args {
    uint64_t logits;
    Floats dloss, stats;
    Ints targets;
    Terms terms;
    uint rows, cols;
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
            const Softmax all = SoftmaxOf(stats, row, terms);
            float factor = dloss.at[row] / all.sum;
            if (terms.z_loss != 0) factor *= 1 + 2 * terms.z_loss * (Log(all.sum) + all.most);
            slope = factor * exp(LoadQuad(logits, kTypes, at, cols - c, kWide) - all.most);
            slope -= dloss.at[row] * terms.share;
            const int here = target - first_row - int(c);
            [[unroll]] for (int k = 0; k < 4; ++k) {
                if (here == k) slope[k] -= dloss.at[row] * (1 - terms.smoothing);
            }
        }
        StoreQuad(logits, kTypes, at, cols - c, kWide, slope);
    }
}
#endif
