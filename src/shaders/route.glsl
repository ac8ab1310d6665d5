// The experts of a row and their weights (kernels/experts.h), by a workgroup whose invocations
// share the experts. The including file declares kRoutes: whether it calls these functions;
// kMostExperts: the number of experts; kSparse: sparse mixing (program::GateScore::kSparseMixer)
// with the bound route_jitter; kSoftplus: scores are square roots of softplus; and kByToken: a table
// chooses the experts.
//
// Other scores are softmax or sigmoid; experts are ranked by score + bias (by the logit, without
// bias and groups), and the lowest id wins among equals. The softmax is summed in the order of
// subgroups.

struct Routing {
    uint64_t bias, factors, ids, weights;  // bias, factors: may be 0
    uint64_t tokens, table;  // kByToken: of each row; and the experts of each token, as floats
    uint experts, used;
    uint groups, groups_used, group_best;
    uint sigmoid, renormalise;
    float scale;
};
// Logits that another workgroup may have written.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedLogits {
    float at[];
};

const uint kMostRouteSubgroups = kRoutes ? 32 : 1;
#define kClosed uintBitsToFloat(0xff800000u)  // -infinity
const float kLowest = -3.402823466e+38;

shared float scores[kMostExperts];
shared float ranking[kMostExperts];
shared float group_sum[kMostExperts];
shared uint group_open[kMostExperts];
shared float best_value[kMostRouteSubgroups];
shared uint best_index[kMostRouteSubgroups];
shared float chosen_weight[kMostExperts];
shared uint chosen_id[kMostExperts];

Routing routing;
uint route_lane;
float route_jitter;

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

// Takes the best of `ranking` (the lowest index among equals) and makes it ineligible. All
// invocations must call it.
uint TakeBest() {
    float value = kClosed;
    uint index = routing.experts;
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        if (ranking[i] > value || index == routing.experts) {
            value = ranking[i];
            index = i;
        }
    }
    const float most = subgroupMax(value);
    const uint lowest = subgroupMin(value == most ? index : routing.experts);
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
    if (route_lane == 0) ranking[index] = kClosed;
    barrier();
    return index;
}

// The sum of the group_best highest scores of a group, computed by one invocation.
float SumOfBest(uint begin, uint size) {
    float sum = 0, last = 0;
    uint last_index = size;
    for (uint n = 0; n < routing.group_best; ++n) {
        float value = kClosed;
        uint index = size;
        for (uint i = 0; i < size; ++i) {
            const float rank = ranking[begin + i];
            // Whether the expert ranks after the last one taken.
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
    const uint size = routing.experts / routing.groups;
    for (uint g = route_lane; g < routing.groups; g += gl_WorkGroupSize.x) {
        group_sum[g] = SumOfBest(g * size, size);
        group_open[g] = 0;
    }
    barrier();
    for (uint g = route_lane; g < routing.groups; g += gl_WorkGroupSize.x) {
        uint before = 0;  // number of better groups
        for (uint h = 0; h < routing.groups; ++h) {
            if (group_sum[h] > group_sum[g] || (group_sum[h] == group_sum[g] && h < g)) ++before;
        }
        group_open[g] = before < routing.groups_used ? 1 : 0;
    }
    barrier();
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        if (group_open[i / size] == 0) ranking[i] = kClosed;
    }
    barrier();
}

// peak: the highest logit. A softmax is divided by its sum later.
float ScoreOf(float x, float peak) {
    if (kSoftplus) return sqrt(Softplus(x));
    return routing.sigmoid != 0 ? 1.0 / (1.0 + exp(-x)) : exp(x - peak);
}

void Score(SharedLogits logits) {
    float peak = kClosed;
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        scores[i] = logits.at[i];
        peak = max(peak, scores[i]);
    }
    peak = Reduce(peak, true);
    float own = 0;
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        const float x = scores[i];
        scores[i] = ScoreOf(x, peak);
        own += scores[i];
    }
    const float sum = Reduce(own, false);
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        if (routing.sigmoid == 0 && !kSoftplus) scores[i] = scores[i] / sum;
        const bool by_logit = routing.bias == 0 && routing.groups <= 1;
        float rank = by_logit ? logits.at[i] : scores[i];
        if (routing.bias != 0) rank += Floats(routing.bias).at[i];
        // NaN ranks last, so that ids are always valid.
        const bool is_number = (floatBitsToUint(rank) & 0x7fffffffu) <= 0x7f800000u;
        ranking[i] = is_number ? max(rank, kLowest) : kLowest;
    }
    barrier();
}

// The weight of the best expert of `ranking`: a softmax over the experts near it that remain. All
// invocations must call it.
float SparseWeight() {
    float peak = kClosed;
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        peak = max(peak, ranking[i]);
    }
    peak = Reduce(peak, true);
    float own = 0;
    for (uint i = route_lane; i < routing.experts; i += gl_WorkGroupSize.x) {
        const float x = ranking[i];
        const bool closed = floatBitsToUint(x) == 0xff800000u;
        if (!closed && !((peak - x) / max(abs(x), peak) > route_jitter)) own += exp(x - peak);
    }
    return 1.0 / Reduce(own, false);
}

// Routes a row of the step. All invocations of a workgroup must call it.
void RouteRow(uint64_t logits, uint row) {
    route_lane = gl_LocalInvocationIndex;
    Score(SharedLogits(logits + uint64_t(row) * routing.experts * 4));
    if (routing.groups > 1) CloseGroups();
    for (uint k = 0; k < routing.used; ++k) {
        float weight = 0;
        if (kSparse) weight = SparseWeight();
        uint expert;
        if (kByToken) {
            const uint token = uint(Ints(routing.tokens).at[row]);
            expert = uint(Floats(routing.table).at[token * routing.used + k]);
        } else {
            expert = TakeBest();
        }
        if (route_lane == 0) {
            chosen_id[k] = expert;
            chosen_weight[k] = kSparse ? weight : scores[expert];
        }
    }
    barrier();
    float sum = 0;
    for (uint k = 0; k < routing.used; ++k) sum += chosen_weight[k];
    const float factor = routing.renormalise != 0 ? routing.scale / (sum + 1e-20) : routing.scale;
    for (uint k = route_lane; k < routing.used; k += gl_WorkGroupSize.x) {
        float weight = chosen_weight[k] * factor;
        if (routing.factors != 0)
            weight = chosen_weight[k] * (factor * Floats(routing.factors).at[chosen_id[k]]);
        Ints(routing.ids).at[row * routing.used + k] = int(chosen_id[k]);
        Floats(routing.weights).at[row * routing.used + k] = weight;
    }
    barrier();  // shared memory has been read
}
