//: expert_bias
//: expert_bias_sum -DSUM
//: expert_bias_sum_grad -DSUM_GRAD
//: expert_bias_grad -DGRAD
// The biases of experts in training. A slot is token * used + k. Slots of experts that this rank
// does not hold count as zeros.
//     expert_bias           y[slot] = x[slot] + bias of its expert; workgroup (columns, slot)
//     expert_bias_sum       y[token] = base[token] + the sum over k of weights[slot] * bias;
//                           workgroup (columns, token)
//     expert_bias_sum_grad  dweights[slot] = dy[token] . bias; a workgroup per slot at a time
//     expert_bias_grad      db[expert] += the sum over its slots, in the order of `plan`
//                           (expert_order.comp), of dy[slot], or of weights[slot] * dy[token];
//                           workgroup (columns, expert). kLanes invocations share a column.
#version 460
#include "element.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint kTypes = 0;  // of x, y; or of dy

#if defined(GRAD)
layout(push_constant, scalar) uniform Args {
    uint64_t dy;
    Ints plan;
    Floats weights, db;  // weights: 0 if absent
    uint cols, used;     // used: slots that share a row of dy
};
const uint kLanes = 8;
shared float parts[gl_WorkGroupSize.x];

void main() {
    const uint columns = gl_WorkGroupSize.x / kLanes, own = gl_LocalInvocationIndex % columns;
    const uint lane = gl_LocalInvocationIndex / columns;
    const uint column = gl_WorkGroupID.x * columns + own, expert = gl_WorkGroupID.y;
    const uint slots = plan.at[1], begins = plan.at[2] + expert;
    const uint end = plan.at[begins + 1];
    float sum = 0;
    for (uint i = plan.at[begins] + lane; i < end && column < cols; i += kLanes) {
        const uint slot = plan.at[slots + i];
        const float value = Load(dy, TypeIn(kTypes, 0), uint64_t(slot / used) * cols + column);
        sum += uint64_t(weights) == 0 ? value : weights.at[slot] * value;
    }
    parts[gl_LocalInvocationIndex] = sum;
    barrier();
    if (lane != 0 || column >= cols) return;
    for (uint i = 1; i < kLanes; ++i) sum += parts[i * columns + own];
    db.at[expert * cols + column] += sum;
}
#else
layout(push_constant, scalar) uniform Args {
    uint64_t x;  // of expert_bias_sum: base; of expert_bias_sum_grad: dy
    Ints ids;
    Floats weights;  // of expert_bias: unused; of expert_bias_sum_grad: dweights
    Floats bias;
    uint64_t y;
    uint slots, cols, used, first_expert, experts;
};

// The index of an expert's bias; `experts` or more: this rank does not hold it.
uint ExpertOf(uint slot) {
    return uint(ids.at[slot]) - first_expert;
}

#if defined(SUM_GRAD)
#include "reduce.glsl"

void main() {
    for (uint slot = gl_WorkGroupID.x; slot < slots; slot += gl_NumWorkGroups.x) {
        const uint expert = ExpertOf(slot);
        const uint64_t row = uint64_t(slot / used) * cols;
        float own = 0;
        for (uint c = gl_LocalInvocationIndex; c < cols && expert < experts;
             c += gl_WorkGroupSize.x) {
            own = fma(Load(x, TypeIn(kTypes, 0), row + c), bias.at[expert * cols + c], own);
        }
        const float sum = SumOfGroup(own);
        if (gl_LocalInvocationIndex == 0) weights.at[slot] = sum;
    }
}
#elif defined(SUM)
void main() {
    const uint c = gl_GlobalInvocationID.x;
    if (c >= cols) return;
    for (uint token = gl_WorkGroupID.y; token < slots / used; token += gl_NumWorkGroups.y) {
        const uint64_t at = uint64_t(token) * cols + c;
        float sum = Load(x, TypeIn(kTypes, 0), at);
        for (uint slot = token * used; slot < (token + 1) * used; ++slot) {
            const uint expert = ExpertOf(slot);
            if (expert < experts) sum = fma(weights.at[slot], bias.at[expert * cols + c], sum);
        }
        Store(y, TypeIn(kTypes, 1), at, sum);
    }
}
#else
void main() {
    const uint c = gl_GlobalInvocationID.x;
    if (c >= cols) return;
    for (uint slot = gl_WorkGroupID.y; slot < slots; slot += gl_NumWorkGroups.y) {
        const uint64_t at = uint64_t(slot) * cols + c;
        const uint expert = ExpertOf(slot);
        const float value = expert < experts ? bias.at[expert * cols + c] : 0.0;
        Store(y, TypeIn(kTypes, 1), at, Load(x, TypeIn(kTypes, 0), at) + value);
    }
}
#endif
#endif
