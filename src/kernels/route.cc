// Routing of a mixture of experts: the experts of each token, and their weights.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/experts.h"

namespace weft::kernels {
namespace {

constexpr float kClosed = -std::numeric_limits<float>::infinity();

void SoftmaxScores(const float* logits, int64_t count, float* scores) {
    const float peak = *std::max_element(logits, logits + count);
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += scores[i] = std::exp(logits[i] - peak);
    for (int64_t i = 0; i < count; ++i) scores[i] /= sum;
}

void SigmoidScores(const float* logits, int64_t count, float* scores) {
    for (int64_t i = 0; i < count; ++i) scores[i] = 1.0f / (1.0f + std::exp(-logits[i]));
}

void SqrtSoftplusScores(const float* logits, int64_t count, float* scores) {
    for (int64_t i = 0; i < count; ++i) {
        const float x = logits[i];
        scores[i] = std::sqrt(std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
    }
}

void ScoreAll(RouterScore score, const float* logits, int64_t count, float* scores) {
    switch (score) {
        case RouterScore::kSoftmax: return SoftmaxScores(logits, count, scores);
        case RouterScore::kSigmoid: return SigmoidScores(logits, count, scores);
        case RouterScore::kSqrtSoftplus: return SqrtSoftplusScores(logits, count, scores);
        case RouterScore::kSparseMixer: return;  // MixSparsely
    }
}

// Takes the best eligible index (the lowest among equals) and makes it ineligible.
int64_t TakeBest(float* ranking, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; ++i) {
        if (ranking[i] > ranking[best]) best = i;
    }
    ranking[best] = kClosed;
    return best;
}

float SumOfBest(const float* ranking, int64_t count, int64_t best) {
    float own[kMostExperts];
    std::copy(ranking, ranking + count, own);
    float sum = 0;
    for (int64_t i = 0; i < best; ++i) {
        const float most = *std::max_element(own, own + count);
        sum += most;
        TakeBest(own, count);
    }
    return sum;
}

// Makes all groups ineligible except the best groups_used.
void CloseGroups(const RouteArgs& args, float* ranking) {
    const int64_t size = args.experts / args.groups;
    float groups[kMostExperts];
    bool open[kMostExperts] = {};
    for (int64_t g = 0; g < args.groups; ++g) {
        groups[g] = SumOfBest(ranking + g * size, size, args.group_best);
    }
    for (int64_t i = 0; i < args.groups_used; ++i) open[TakeBest(groups, args.groups)] = true;
    for (int64_t g = 0; g < args.groups; ++g) {
        if (!open[g]) std::fill_n(ranking + g * size, size, kClosed);
    }
}

// The experts of highest rank.
void ChooseExperts(const RouteArgs& args, const float* logits, const float* scores, int32_t* ids) {
    float ranking[kMostExperts];
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    const bool by_logit = args.bias == nullptr && args.groups <= 1;
    for (int64_t e = 0; e < args.experts; ++e) {
        // NaN ranks last, so that ids are always valid.
        const float rank = by_logit               ? logits[e]
                           : args.bias != nullptr ? scores[e] + args.bias[e]
                                                  : scores[e];
        ranking[e] = std::isnan(rank) ? kLowest : std::max(rank, kLowest);
    }
    if (args.groups > 1) CloseGroups(args, ranking);
    for (int64_t k = 0; k < args.used; ++k) {
        ids[k] = static_cast<int32_t>(TakeBest(ranking, args.experts));
    }
}

// Clamps tokens and ids, so that ids are valid whatever the table holds.
void LookUpExperts(const RouteArgs& args, int64_t row, int32_t* ids) {
    const int64_t token = std::clamp<int64_t>(args.tokens[row], 0, args.vocab - 1);
    for (int64_t k = 0; k < args.used; ++k) {
        const float id = args.table[token * args.used + k];
        const auto last = static_cast<float>(args.experts - 1);
        ids[k] = id > 0 ? static_cast<int32_t>(std::min(id, last)) : 0;
    }
}

// Chooses the experts with the highest logits. The weight of each is a softmax over the experts
// near it that remain.
void MixSparsely(const RouteArgs& args, const float* logits, int32_t* ids, float* weights) {
    float ranking[kMostExperts];
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    for (int64_t e = 0; e < args.experts; ++e) {
        ranking[e] = std::isnan(logits[e]) ? kLowest : std::max(logits[e], kLowest);
    }
    for (int64_t k = 0; k < args.used; ++k) {
        const float most = *std::max_element(ranking, ranking + args.experts);
        float sum = 0;
        for (int64_t e = 0; e < args.experts; ++e) {
            if (ranking[e] == kClosed) continue;
            const float distance = (most - ranking[e]) / std::max(std::fabs(ranking[e]), most);
            if (!(distance > args.jitter)) sum += std::exp(ranking[e] - most);
        }
        ids[k] = static_cast<int32_t>(TakeBest(ranking, args.experts));
        weights[k] = args.scale / sum;
    }
}

void RouteRow(const RouteArgs& args, int64_t row) {
    int32_t* ids = args.ids + row * args.used;
    float* weights = args.weights + row * args.used;
    float scores[kMostExperts];
    const float* logits = args.logits + row * args.experts;
    if (args.score == RouterScore::kSparseMixer) return MixSparsely(args, logits, ids, weights);
    ScoreAll(args.score, logits, args.experts, scores);
    args.table == nullptr ? ChooseExperts(args, logits, scores, ids)
                          : LookUpExperts(args, row, ids);
    float sum = 0;
    for (int64_t k = 0; k < args.used; ++k) sum += weights[k] = scores[ids[k]];
    const float factor = args.renormalise ? args.scale / (sum + 1e-20f) : args.scale;
    for (int64_t k = 0; k < args.used; ++k) {
        weights[k] *= args.factors == nullptr ? factor : factor * args.factors[ids[k]];
    }
}

}  // namespace

void Route(const RouteArgs& args, int part, int parts) {
    WEFT_CHECK(args.experts <= kMostExperts);
    const Range share = Share(args.rows, 1, part, parts);
    for (int64_t row = share.begin; row < share.end; ++row) {
        RouteRow(args, row);
    }
}

// A counting sort.
void PlanExperts(const PlanExpertsArgs& args, int part, int) {
    if (part != 0) return;
    const int64_t slots = args.rows * args.used;
    int32_t* begin = args.plan.begin;
    std::fill_n(begin, args.count + 1, 0);
    const auto held = [&](int64_t slot) { return args.ids[slot] - args.first_expert; };
    const auto is_held = [&](int64_t expert) { return expert >= 0 && expert < args.count; };
    for (int64_t slot = 0; slot < slots; ++slot) {
        if (is_held(held(slot))) ++begin[held(slot) + 1];
    }
    for (int64_t e = 0; e < args.count; ++e) begin[e + 1] += begin[e];
    for (int64_t slot = 0; slot < slots; ++slot) {
        if (is_held(held(slot))) args.plan.slots[begin[held(slot)]++] = static_cast<int32_t>(slot);
    }
    for (int64_t e = args.count; e > 0; --e) begin[e] = begin[e - 1];
    begin[0] = 0;
    if (args.plan.place == nullptr) return;
    std::fill_n(args.plan.place, slots, -1);
    for (int32_t i = 0; i < begin[args.count]; ++i) args.plan.place[args.plan.slots[i]] = i;
}

void WeighRows(const WeighRowsArgs& args, int part, int parts) {
    const Range slots = Share(args.rows * args.used, 1, part, parts);
    std::fill(args.rest + slots.begin, args.rest + slots.end, 1.0f);
    const Range share = Share(args.plan.begin[args.experts], 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t slot = args.plan.slots[i];
        const float weight = args.weights[slot];
        const float* x = args.x + slot / args.used * args.cols;
        float* y = args.y + i * args.cols;
        for (int64_t c = 0; c < args.cols; ++c) y[c] = weight * x[c];
    }
}

}  // namespace weft::kernels
