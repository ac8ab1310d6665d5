#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace weft::engine {
namespace {

Result<int32_t> Greedy(std::span<const float> logits) {
    size_t best = 0;
    bool nan = false;
    for (size_t i = 0; i < logits.size(); ++i) {
        nan |= std::isnan(logits[i]);
        if (logits[i] > logits[best]) best = i;
    }
    if (nan) {
        return MakeError(ErrorCode::kCorrupt,
                         "the model's logits are not numbers (NaN): the file is damaged, or its "
                         "scales are. 'weft inspect' shows it; download it again");
    }
    return static_cast<int32_t>(best);
}

}  // namespace

Status CheckSampler(const SamplerOptions& o) {
    const auto wrong = [](const char* name, double value, const char* expected) {
        return MakeError(ErrorCode::kUsage, "--{} {}: expected {}", name, value, expected);
    };
    if (!(o.temperature >= 0 && o.temperature <= 100)) {
        return wrong("temp", o.temperature, "0 (greedy) to 100");
    }
    if (o.top_k < 0) return wrong("top-k", o.top_k, "0 (all) or more");
    if (!(o.top_p > 0 && o.top_p <= 1)) return wrong("top-p", o.top_p, "more than 0, at most 1");
    if (!(o.min_p >= 0 && o.min_p < 1)) return wrong("min-p", o.min_p, "0 to less than 1");
    if (!(o.repeat_penalty > 0 && o.repeat_penalty <= 100)) {
        return wrong("repeat-penalty", o.repeat_penalty, "more than 0, at most 100");
    }
    return {};
}

Result<int32_t> Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history) {
    const bool penalize = options_.repeat_penalty != 1.0f && options_.repeat_last > 0;
    WEFT_ASSIGN(const int32_t greedy, Greedy(logits));
    if (options_.temperature <= 0 && !penalize) return greedy;
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
        candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    }
    if (penalize) Penalize(history);
    const size_t keep = options_.temperature <= 0 ? 1
                        : options_.top_k > 0
                            ? std::min(candidates_.size(), static_cast<size_t>(options_.top_k))
                            : candidates_.size();
    const auto better = [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(keep),
                      candidates_.end(), better);
    candidates_.resize(keep);
    return keep == 1 ? candidates_[0].id : Draw();
}

void Sampler::Penalize(std::span<const int32_t> history) {
    const size_t last = std::min(history.size(), static_cast<size_t>(options_.repeat_last));
    std::unordered_set<int32_t> seen;
    for (int32_t id : history.last(last)) {
        if (id < 0 || static_cast<size_t>(id) >= candidates_.size()) continue;
        if (!seen.insert(id).second) continue;
        float& logit = candidates_[static_cast<size_t>(id)].logit;
        logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
}

// Candidates are sorted, best first.
int32_t Sampler::Draw() {
    const double best = candidates_[0].logit;
    std::vector<double> weights;
    double plain_total = 0;
    for (const Candidate& c : candidates_) plain_total += std::exp(c.logit - best);
    double plain_sum = 0, total = 0;
    for (const Candidate& c : candidates_) {
        const double plain = std::exp(c.logit - best);
        const bool enough = plain_sum >= options_.top_p * plain_total && !weights.empty();
        if (enough || (plain < options_.min_p && !weights.empty())) break;
        plain_sum += plain;
        weights.push_back(std::exp((c.logit - best) / options_.temperature));
        total += weights.back();
    }
    // 53 random bits as a number in [0, 1): the same on every standard library.
    double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
    for (size_t i = 0; i < weights.size(); ++i) {
        left -= weights[i];
        if (left < 0) return candidates_[i].id;
    }
    return candidates_[weights.size() - 1].id;
}

}  // namespace weft::engine
