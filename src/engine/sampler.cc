#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace weft::engine {
namespace {

// Lanes of the search for the largest logit, so that it runs at the speed of memory.
constexpr size_t kLanes = 16;

// The largest logit, the lowest id among equals.
Result<int32_t> Greedy(std::span<const float> logits) {
    float most[kLanes];
    uint32_t nans[kLanes] = {};
    std::ranges::fill(most, -INFINITY);
    const auto see = [&](size_t lane, float logit) {
        most[lane] = logit > most[lane] ? logit : most[lane];
        nans[lane] |= logit != logit ? 1u : 0u;
    };
    const size_t whole = logits.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) see(lane, logits[i + lane]);
    }
    for (size_t i = whole; i < logits.size(); ++i) see(0, logits[i]);
    const float best = *std::ranges::max_element(most);
    const bool nan = std::ranges::any_of(nans, [](uint32_t seen) { return seen != 0; });
    if (nan || std::isinf(best)) {
        return MakeError(ErrorCode::kCorrupt,
                         "the model's logits are not finite numbers ({}): the file is damaged, or "
                         "its scales are. 'weft inspect' shows it; download it again",
                         nan ? "NaN" : "infinite");
    }
    return static_cast<int32_t>(std::ranges::find(logits, best) - logits.begin());
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
    if (o.repeat_last < 0) return wrong("repeat-last", o.repeat_last, "0 (no penalty) or more");
    if (!(std::abs(o.presence_penalty) <= 100)) {
        return wrong("presence-penalty", o.presence_penalty, "-100 to 100");
    }
    if (!(std::abs(o.frequency_penalty) <= 100)) {
        return wrong("frequency-penalty", o.frequency_penalty, "-100 to 100");
    }
    for (const auto& [id, bias] : o.bias) {
        if (!(std::abs(bias) <= 1e6f)) return wrong("bias", bias, "-1e6 to 1e6");
    }
    return {};
}

Result<int32_t> Sampler::Sample(std::span<const float> logits, const SampleContext& context) {
    logits = Adjusted(logits, context);
    WEFT_ASSIGN(const int32_t greedy, Greedy(logits));
    if (options_.temperature <= 0 || options_.top_k == 1) return greedy;
    const float best = logits[static_cast<size_t>(greedy)];
    Select(logits, best);
    return Draw(best);
}

// The logits as they are where nothing is asked that changes them, else a changed copy.
std::span<const float> Sampler::Adjusted(std::span<const float> logits,
                                         const SampleContext& context) {
    WEFT_CHECK(!logits.empty());
    const bool repeats = options_.repeat_penalty != 1.0f && options_.repeat_last > 0;
    const bool counts = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
    if (!repeats && !counts && options_.bias.empty() && context.allowed.empty()) return logits;
    adjusted_.assign(logits.begin(), logits.end());
    for (const auto& [id, bias] : options_.bias) {
        if (id >= 0 && static_cast<size_t>(id) < adjusted_.size()) {
            adjusted_[static_cast<size_t>(id)] += bias;
        }
    }
    if (!context.allowed.empty()) {
        for (size_t i = 0; i < adjusted_.size(); ++i) {
            const bool allowed =
                i / 32 < context.allowed.size() && (context.allowed[i / 32] >> (i % 32) & 1u) != 0;
            if (!allowed) adjusted_[i] = -INFINITY;
        }
    }
    if (repeats) Repeat(context.history);
    if (counts) Count(context.history.subspan(std::min(context.prompt, context.history.size())));
    return adjusted_;
}

void Sampler::Repeat(std::span<const int32_t> history) {
    const size_t last = std::min(history.size(), static_cast<size_t>(options_.repeat_last));
    const auto recent = history.last(last);
    recent_.assign(recent.begin(), recent.end());
    std::sort(recent_.begin(), recent_.end());
    recent_.erase(std::unique(recent_.begin(), recent_.end()), recent_.end());
    for (const int32_t id : recent_) {
        if (id < 0 || static_cast<size_t>(id) >= adjusted_.size()) continue;
        float& logit = adjusted_[static_cast<size_t>(id)];
        logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
}

// As OpenAI's API has it: logit - presence - frequency * times.
void Sampler::Count(std::span<const int32_t> said) {
    recent_.assign(said.begin(), said.end());
    std::sort(recent_.begin(), recent_.end());
    for (size_t i = 0; i < recent_.size(); ++i) {
        const int32_t id = recent_[i];
        if (id < 0 || static_cast<size_t>(id) >= adjusted_.size()) continue;
        float& logit = adjusted_[static_cast<size_t>(id)];
        if (i == 0 || recent_[i - 1] != id) logit -= options_.presence_penalty;
        logit -= options_.frequency_penalty;
    }
}

bool Sampler::Better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Fills candidates_ with the tokens that may be drawn: top-k, of these top-p, of these min-p.
// Both p's cut the tail of the order by probability, so that min-p may go first as long as top-p
// knows the total of what it would have seen.
void Sampler::Select(std::span<const float> logits, float best) {
    SelectTopK(logits);
    if (options_.min_p == 0 && options_.top_p == 1) return;
    double total = 0;
    size_t kept = 0;
    for (const Candidate& candidate : candidates_) {
        const double share = std::exp(static_cast<double>(candidate.logit) - best);
        total += share;
        if (share >= options_.min_p && share > 0) candidates_[kept++] = candidate;
    }
    candidates_.resize(kept);
    if (options_.top_p < 1) CutTopP(best, total);
}

// All tokens in the order of their ids, or the best k in no order.
void Sampler::SelectTopK(std::span<const float> logits) {
    const size_t all = logits.size();
    const size_t k = options_.top_k > 0 ? std::min(all, static_cast<size_t>(options_.top_k)) : all;
    candidates_.clear();
    candidates_.reserve(k);
    for (size_t i = 0; i < k; ++i) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    if (k == all) return;
    std::make_heap(candidates_.begin(), candidates_.end(), Better);  // the worst is in front
    for (size_t i = k; i < all; ++i) {
        if (!(logits[i] > candidates_.front().logit)) continue;
        std::pop_heap(candidates_.begin(), candidates_.end(), Better);
        candidates_.back() = {logits[i], static_cast<int32_t>(i)};
        std::push_heap(candidates_.begin(), candidates_.end(), Better);
    }
}

// Keeps the best candidates that reach top_p of `total` together, and one at least.
void Sampler::CutTopP(float best, double total) {
    const auto worse = [](const Candidate& a, const Candidate& b) { return Better(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), worse);  // the best is in front
    auto end = candidates_.end();
    for (double sum = 0; end != candidates_.begin() && sum < options_.top_p * total;) {
        sum += std::exp(static_cast<double>(candidates_.front().logit) - best);
        std::pop_heap(candidates_.begin(), end--, worse);
    }
    candidates_.erase(candidates_.begin(), end);
}

int32_t Sampler::Draw(float best) {
    double total = 0;
    weights_.clear();
    for (const Candidate& candidate : candidates_) {
        const double above = static_cast<double>(candidate.logit) - best;
        weights_.push_back(std::exp(above / options_.temperature));
        total += weights_.back();
    }
    double left = Uniform() * total;
    size_t chosen = 0;  // with rounding, the last one that can be drawn at all
    for (size_t i = 0; i < weights_.size(); ++i) {
        if (weights_[i] == 0) continue;
        chosen = i;
        left -= weights_[i];
        if (left < 0) break;
    }
    return candidates_[chosen].id;
}

Status Sampler::Distribute(std::span<const float> logits, const SampleContext& context,
                           Distribution& out) {
    logits = Adjusted(logits, context);
    WEFT_ASSIGN(const int32_t greedy, Greedy(logits));
    if (options_.temperature <= 0 || options_.top_k == 1) {
        out.entries.assign(1, {greedy, 1.0});
        return {};
    }
    const float best = logits[static_cast<size_t>(greedy)];
    Select(logits, best);
    double total = 0;
    out.entries.clear();
    for (const Candidate& candidate : candidates_) {
        const double above = static_cast<double>(candidate.logit) - best;
        const double weight = std::exp(above / options_.temperature);
        if (weight == 0) continue;
        out.entries.push_back({candidate.id, weight});
        total += weight;
    }
    for (Distribution::Entry& entry : out.entries) entry.chance /= total;
    return {};
}

// With rounding, chances may add up to a little less than what is asked for: then the last one.
int32_t Sampler::DrawFrom(const Distribution& distribution) {
    WEFT_CHECK(!distribution.entries.empty());
    double total = 0;
    for (const Distribution::Entry& entry : distribution.entries) total += entry.chance;
    double left = Uniform() * total;
    for (const Distribution::Entry& entry : distribution.entries) {
        left -= entry.chance;
        if (left < 0) return entry.id;
    }
    return distribution.entries.back().id;
}

Verdict Sampler::Judge(const Distribution& p, const Distribution& q, int32_t drafted) {
    int32_t last = drafted;
    for (const auto& entries : {std::cref(p.entries), std::cref(q.entries)}) {
        for (const Distribution::Entry& entry : entries.get()) last = std::max(last, entry.id);
    }
    if (chances_.size() <= static_cast<size_t>(last))
        chances_.resize(static_cast<size_t>(last) + 1);
    for (const Distribution::Entry& entry : q.entries) {
        chances_[static_cast<size_t>(entry.id)] = entry.chance;
    }
    const double drawn_with = chances_[static_cast<size_t>(drafted)];
    WEFT_CHECK(drawn_with > 0);
    double wanted_with = 0;
    rest_.entries.clear();
    for (const Distribution::Entry& entry : p.entries) {
        if (entry.id == drafted) wanted_with = entry.chance;
        const double more = entry.chance - chances_[static_cast<size_t>(entry.id)];
        if (more > 0) rest_.entries.push_back({entry.id, more});
    }
    for (const Distribution::Entry& entry : q.entries) chances_[static_cast<size_t>(entry.id)] = 0;
    if (Uniform() * drawn_with < wanted_with) return {true, drafted};
    // p and q are the same but for rounding: then the draw that was refused says nothing, either.
    return {false, DrawFrom(rest_.entries.empty() ? p : rest_)};
}

}  // namespace weft::engine
