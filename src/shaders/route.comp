//: route
// The experts of each row, and their weights (kernels/experts.h). A workgroup, whose invocations
// share the experts, takes one row.
//
// Scores are softmax or sigmoid; score + bias ranks; of equal ones the lowest id is chosen. The sum
// of the softmax is taken in the order of subgroups.
#version 460
#include "head.glsl"

layout(push_constant, scalar) uniform Args {
    uint64_t logits, bias, factors, ids, weights;  // bias, factors: or 0
    uint experts, used;
    uint groups, groups_used, group_best;
    uint sigmoid, renormalise;
    float scale;
} a;

const uint kMostExperts = 1024;
const uint kMostSubgroups = 32;
#define kClosed uintBitsToFloat(0xff800000u)  // -infinity
const float kLowest = -3.402823466e+38;

shared float scores[kMostExperts];
shared float ranking[kMostExperts];
shared float group_sum[kMostExperts];
shared uint group_open[kMostExperts];
shared float best_value[kMostSubgroups];
shared uint best_index[kMostSubgroups];
shared float chosen_weight[kMostExperts];
shared uint chosen_id[kMostExperts];

uint lane;

float Reduce(float own, bool most) {
    const float part = most ? subgroupMax(own) : subgroupAdd(own);
    if (subgroupElect()) best_value[gl_SubgroupID] = part;
    barrier();
    float all = best_value[0];
    for (uint s = 1; s < gl_NumSubgroups; ++s) {
        all = most ? max(all, best_value[s]) : all + best_value[s];
    }
    barrier();
    return all;
}

// The best of ranking, the lowest index of equal ones; closes it. For all invocations.
uint TakeBest() {
    float value = kClosed;
    uint index = a.experts;
    for (uint i = lane; i < a.experts; i += gl_WorkGroupSize.x) {
        if (ranking[i] > value || index == a.experts) {
            value = ranking[i];
            index = i;
        }
    }
    const float most = subgroupMax(value);
    const uint lowest = subgroupMin(value == most ? index : a.experts);
    if (subgroupElect()) {
        best_value[gl_SubgroupID] = most;
        best_index[gl_SubgroupID] = lowest;
    }
    barrier();
    value = best_value[0];
    index = best_index[0];
    for (uint s = 1; s < gl_NumSubgroups; ++s) {
        const bool better = best_value[s] > value ||
                            (best_value[s] == value && best_index[s] < index);
        if (better) {
            value = best_value[s];
            index = best_index[s];
        }
    }
    barrier();
    if (lane == 0) ranking[index] = kClosed;
    barrier();
    return index;
}

// The sum of the best group_best of a group, by one invocation.
float SumOfBest(uint begin, uint size) {
    float sum = 0, last = 0;
    uint last_index = size;
    for (uint n = 0; n < a.group_best; ++n) {
        float value = kClosed;
        uint index = size;
        for (uint i = 0; i < size; ++i) {
            const float rank = ranking[begin + i];
            // Behind the one taken last.
            const bool left = n == 0 || rank < last || (rank == last && i > last_index);
            if (left && (rank > value || index == size)) {
                value = rank;
                index = i;
            }
        }
        if (index == size) break;
        sum += value;
        last = value;
        last_index = index;
    }
    return sum;
}

void CloseGroups() {
    const uint size = a.experts / a.groups;
    for (uint g = lane; g < a.groups; g += gl_WorkGroupSize.x) {
        group_sum[g] = SumOfBest(g * size, size);
        group_open[g] = 0;
    }
    barrier();
    for (uint g = lane; g < a.groups; g += gl_WorkGroupSize.x) {
        uint before = 0;  // groups that are chosen before this one
        for (uint h = 0; h < a.groups; ++h) {
            if (group_sum[h] > group_sum[g] || (group_sum[h] == group_sum[g] && h < g)) ++before;
        }
        group_open[g] = before < a.groups_used ? 1 : 0;
    }
    barrier();
    for (uint i = lane; i < a.experts; i += gl_WorkGroupSize.x) {
        if (group_open[i / size] == 0) ranking[i] = kClosed;
    }
    barrier();
}

void Score(uint64_t logits) {
    float peak = kClosed;
    for (uint i = lane; i < a.experts; i += gl_WorkGroupSize.x) {
        scores[i] = Floats(logits).at[i];
        peak = max(peak, scores[i]);
    }
    peak = Reduce(peak, true);
    float own = 0;
    for (uint i = lane; i < a.experts; i += gl_WorkGroupSize.x) {
        const float x = scores[i];
        scores[i] = a.sigmoid != 0 ? 1.0 / (1.0 + exp(-x)) : exp(x - peak);
        own += scores[i];
    }
    const float sum = Reduce(own, false);
    for (uint i = lane; i < a.experts; i += gl_WorkGroupSize.x) {
        if (a.sigmoid == 0) scores[i] = scores[i] / sum;
        float rank = scores[i];
        if (a.bias != 0) rank += Floats(a.bias).at[i];
        // One that is not a number ranks last, so that ids are always sound.
        const bool is_number = (floatBitsToUint(rank) & 0x7fffffffu) <= 0x7f800000u;
        ranking[i] = is_number ? rank : kLowest;
    }
    barrier();
}

void main() {
    lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    const uint row = gl_WorkGroupID.y;
    Score(a.logits + uint64_t(row) * a.experts * 4);
    if (a.groups > 1) CloseGroups();
    for (uint k = 0; k < a.used; ++k) {
        const uint expert = TakeBest();
        if (lane == 0) {
            chosen_id[k] = expert;
            chosen_weight[k] = scores[expert];
        }
    }
    barrier();
    float sum = 0;
    for (uint k = 0; k < a.used; ++k) sum += chosen_weight[k];
    const float factor = a.renormalise != 0 ? a.scale / (sum + 1e-20) : a.scale;
    for (uint k = lane; k < a.used; k += gl_WorkGroupSize.x) {
        float weight = chosen_weight[k] * factor;
        if (a.factors != 0) weight = chosen_weight[k] * (factor * Floats(a.factors).at[chosen_id[k]]);
        Ints(a.ids).at[row * a.used + k] = int(chosen_id[k]);
        Floats(a.weights).at[row * a.used + k] = weight;
    }
}
