//: router_scores -DSCORES
//: route_grad -DROUTE_GRAD
//: route_factors_grad -DFACTORS_GRAD
//: router_load_grad -DLOAD_GRAD
// Rows of a router's logits [rows, experts], one workgroup per row at a time:
//     router_scores     y = softmax(logits)
//     route_grad        gradient of the logits, from the gradient of the experts' weights
//     route_factors_grad  y = each row's addends to the gradient of the experts' factors
//     router_load_grad  gradient of the logits, from the gradient of column sums of y
#version 460
#include "floats.glsl"
#include "glu.glsl"
#include "reduce.glsl"
layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Args {
    Floats logits, y;
#if defined(ROUTE_GRAD) || defined(FACTORS_GRAD)
    Floats dweights;
    Ints ids;
    Floats factors;  // of each expert's weight; 0 if absent
    uint rows, experts, used, sigmoid, renormalise;
    float scale;
#else
    Floats dsums;  // router_scores: absent
    uint rows, experts;
#endif
};

// The softmax of a row: exp(logit - most) / sum.
uint begin;
float most, sum;

void FindSoftmax(uint row) {
    begin = row * experts;
    float own = uintBitsToFloat(0xff800000u);  // -infinity
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        own = max(own, logits.at[begin + e]);
    }
    most = MaxOfGroup(own);
    own = 0;
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        own += exp(logits.at[begin + e] - most);
    }
    sum = SumOfGroup(own);
}
float Score(uint e) {
    return exp(logits.at[begin + e] - most) / sum;
}

#if defined(SCORES)
void Row(uint row) {
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        y.at[begin + e] = Score(e);
    }
}
#elif defined(LOAD_GRAD)
void Row(uint row) {
    float own = 0;
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        own = fma(Score(e), dsums.at[e], own);
    }
    const float across = SumOfGroup(own);
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        y.at[begin + e] = Score(e) * (dsums.at[e] - across);
    }
}
#else
// Gradient of w = factor * scale * s / sum(s), or w = factor * scale * s, where s are the scores of
// the chosen experts.
float ChosenScore(uint e) {
    return sigmoid != 0 ? Sigmoid(logits.at[begin + e]) : Score(e);
}
// The gradient of the weight of choice k without its factor.
float WeightGrad(uint row, uint k) {
    const float grad = dweights.at[row * used + k];
    return uint64_t(factors) == 0 ? grad : grad * factors.at[ids.at[row * used + k]];
}
void Row(uint row) {
    float chosen_sum = 0, dot_sum = 0;
    for (uint k = 0; k < used; ++k) {
        const float score = ChosenScore(uint(ids.at[row * used + k]));
        chosen_sum += score;
        dot_sum = fma(score, WeightGrad(row, k), dot_sum);
    }
    const float divisor = renormalise != 0 ? chosen_sum + 1e-20 : 1;  // (as in route.glsl)
    const float factor = scale / divisor;
#ifdef FACTORS_GRAD
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        float sum = 0;
        for (uint k = 0; k < used; ++k) {
            if (ids.at[row * used + k] == int(e)) sum += dweights.at[row * used + k];
        }
        y.at[begin + e] = sum == 0.0 ? 0.0 : factor * ChosenScore(e) * sum;
    }
    return;
#endif
    const float mean = renormalise != 0 ? dot_sum / divisor : 0;
    // The sum over the chosen experts of s * ds, where ds = factor * (dweight - mean).
    const float across = factor * (dot_sum - mean * chosen_sum);
    for (uint e = gl_LocalInvocationIndex; e < experts; e += gl_WorkGroupSize.x) {
        float slope = 0;
        const float score = ChosenScore(e);
        if (sigmoid == 0 && renormalise == 0) slope = -score * across;
        for (uint k = 0; k < used; ++k) {
            if (ids.at[row * used + k] != int(e)) continue;
            const float ds = factor * (WeightGrad(row, k) - mean);
            slope += (sigmoid != 0 ? score * Sigmoid(-logits.at[begin + e]) : score) * ds;
        }
        y.at[begin + e] = slope;
    }
}
#endif

void main() {
    for (uint row = gl_WorkGroupID.x; row < rows; row += gl_NumWorkGroups.x) {
        FindSoftmax(row);
        Row(row);
    }
}
