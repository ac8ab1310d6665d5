#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/sampling/logits_row.h"

namespace weft::engine {

using backend::Candidate;

namespace {

bool NoneLeft(std::span<const float> logits) {
    return std::ranges::all_of(logits, [](float logit) { return logit == -INFINITY; });
}

}  // namespace

Status CheckBest(float best) {
    if (std::isfinite(best)) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "the model's logits are not finite numbers ({}): the file is damaged, or "
                     "its scales are. 'weft inspect' shows it; download it again",
                     std::isnan(best) ? "NaN" : "infinite");
}

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
    // (With a smaller one, a logit may become infinite.)
    if (!(o.repeat_penalty >= 0.01f && o.repeat_penalty <= 100)) {
        return wrong("repeat-penalty", o.repeat_penalty, "0.01 to 100");
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
    if (!(o.typical_p > 0 && o.typical_p <= 1)) {
        return wrong("typical", o.typical_p, "more than 0, at most 1");
    }
    if (!(o.top_n_sigma >= 0 && o.top_n_sigma <= 1000)) {
        return wrong("top-nsigma", o.top_n_sigma, "0 (off) to 1000");
    }
    if (!(o.xtc_probability >= 0 && o.xtc_probability <= 1)) {
        return wrong("xtc-probability", o.xtc_probability, "0 (off) to 1");
    }
    if (!(o.xtc_threshold >= 0 && o.xtc_threshold <= 1)) {
        return wrong("xtc-threshold", o.xtc_threshold, "0 to 1; above 0.5: off");
    }
    const auto empty = [](const std::vector<int32_t>& tokens) { return tokens.empty(); };
    if (std::ranges::any_of(o.banned, empty)) {
        return MakeError(ErrorCode::kUsage, "banned words: one has no tokens; expected 1 or more");
    }
    return CheckDry(o.dry);
}

Result<int32_t> Sampler::Sample(const LogitsRow& logits, const SampleContext& context) {
    if (const Candidate* drawn = logits.drawn(); drawn != nullptr) {
        random_();  // the random number that the last stage used
        WEFT_TRY(CheckBest(drawn->value));
        return drawn->index;
    }
    WEFT_TRY(Select(logits, context));
    return takes_best() ? BestLeft() : Draw(Uniform());
}

// The most likely remaining token; among equal ones, the lowest id.
int32_t Sampler::BestLeft() const {
    size_t best = 0;
    for (size_t i = 1; i < values_.size(); ++i) {
        const bool lower = values_[i] == values_[best] && IdOf(i) < IdOf(best);
        if (values_[i] > values_[best] || lower) best = i;
    }
    return IdOf(best);
}

RowRequest Sampler::Ask(bool masked, int64_t columns, int64_t ahead) const {
    const auto top = static_cast<int32_t>(TopK(static_cast<size_t>(columns), masked));
    if (top > 0) return {RowRequest::Kind::kBest, top, {}};
    if (Adjusts(masked) || options_.top_n_sigma > 0 || options_.reorders()) return {};
    std::mt19937_64 random = random_;
    random.discard(static_cast<unsigned long long>(ahead));
    return {RowRequest::Kind::kToken,
            0,
            {options_.temperature, options_.top_p, options_.min_p, random() >> 11}};
}

Sampler::Candidate Sampler::DrawToken(std::span<const float> logits, const RowChain& chain) {
    options_ = {.temperature = chain.temperature, .top_p = chain.top_p, .min_p = chain.min_p};
    const bool finite = Select(LogitsRow(logits), {}).ok();
    return {best_, finite ? Draw(UniformOf(chain.random)) : -1};
}

bool Sampler::Adjusts(bool masked) const {
    const bool repeats = options_.repeat_penalty != 1.0f && options_.repeat_last > 0;
    const bool counts = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
    return repeats || counts || !options_.bias.empty() || options_.dry.on() || Forbids(masked);
}

bool Sampler::Forbids(bool masked) const {
    const SamplerOptions& o = options_;
    return masked || !o.allowed.empty() || !o.banned.empty() || o.min_tokens > 0;
}

// Number of best logits that suffice for sampling; 0: it needs all.
size_t Sampler::TopK(size_t columns, bool masked) const {
    const size_t asked = greedy() ? 1 : static_cast<size_t>(options_.top_k);
    // (Top-n-sigma needs the deviation of all logits. It keeps the best one.)
    const bool sigma = options_.top_n_sigma > 0 && asked != 1;
    return asked == 0 || asked >= columns || sigma || Adjusts(masked) ? 0 : asked;
}

void Sampler::Want(bool masked, backend::WantedRows& wanted) const {
    const size_t top = TopK(static_cast<size_t>(wanted.columns), masked);
    wanted.top = std::max(wanted.top, static_cast<int32_t>(top));
    wanted.whole = wanted.whole || top == 0;
}

// Applies bias, forbidden tokens and penalties to adjusted_, the logits. Errors: as Forbid.
Status Sampler::Adjust(const SampleContext& context) {
    for (const auto& [id, bias] : options_.bias) {
        if (id >= 0 && static_cast<size_t>(id) < adjusted_.size()) {
            adjusted_[static_cast<size_t>(id)] += bias;
        }
    }
    if (Forbids(!context.allowed.empty())) WEFT_TRY(Forbid(context));
    if (options_.repeat_penalty != 1.0f && options_.repeat_last > 0) Repeat(context.history);
    if (options_.presence_penalty != 0 || options_.frequency_penalty != 0) Count(context);
    dry_.Apply(options_.dry, context.history, adjusted_);
    return {};
}

// Sets the logits of forbidden tokens to -inf. Errors: kUnsupported: no token remains.
Status Sampler::Forbid(const SampleContext& context) {
    for (const std::span<const uint32_t> allowed :
         {context.allowed, std::span<const uint32_t>(options_.allowed)}) {
        if (allowed.empty()) continue;
        for (size_t i = 0; i < adjusted_.size(); ++i) {
            const bool may = i / 32 < allowed.size() && (allowed[i / 32] >> (i % 32) & 1u) != 0;
            if (!may) adjusted_[i] = -INFINITY;
        }
    }
    const auto said = context.said();
    for (const std::vector<int32_t>& banned : options_.banned) {
        const auto before = std::span(banned).first(banned.size() - 1);
        if (before.size() > said.size() || !std::ranges::equal(before, said.last(before.size()))) {
            continue;
        }
        const auto id = static_cast<size_t>(banned.back());
        if (id < adjusted_.size()) adjusted_[id] = -INFINITY;
    }
    if (NoneLeft(adjusted_)) {
        return MakeError(ErrorCode::kUnsupported,
                         "no token may come next: allowed tokens, banned words and the grammar "
                         "together exclude all of them");
    }
    if (std::cmp_less(said.size(), options_.min_tokens)) ForbidEnds();
    return {};
}

void Sampler::ForbidEnds() {
    std::vector<std::pair<size_t, float>> before;
    for (const int32_t end : options_.ends) {
        const auto id = static_cast<size_t>(end);
        if (id >= adjusted_.size()) continue;
        before.emplace_back(id, std::exchange(adjusted_[id], -INFINITY));
    }
    if (!NoneLeft(adjusted_)) return;
    for (const auto& [id, logit] : before) adjusted_[id] = logit;
}

void Sampler::Repeat(std::span<const int32_t> history) {
    const size_t last = std::min(history.size(), static_cast<size_t>(options_.repeat_last));
    recent_.Set(history, history.size() - last);
    for (const auto& [id, times] : recent_.entries()) {
        if (id < 0 || static_cast<size_t>(id) >= adjusted_.size()) continue;
        float& logit = adjusted_[static_cast<size_t>(id)];
        logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
}

// As in OpenAI's API: logit - presence - frequency * times. (Frequency is subtracted for each time,
// which rounds otherwise than a product.)
void Sampler::Count(const SampleContext& context) {
    said_.Set(context.history, std::min(context.prompt, context.history.size()));
    for (const auto& [id, times] : said_.entries()) {
        if (id < 0 || static_cast<size_t>(id) >= adjusted_.size()) continue;
        float& logit = adjusted_[static_cast<size_t>(id)];
        logit -= options_.presence_penalty;
        if (options_.frequency_penalty == 0) continue;
        for (int32_t i = 0; i < times; ++i) logit -= options_.frequency_penalty;
    }
}

// Finds the tokens that may be drawn. Top-n-sigma, top-k, top-p and min-p cut the tail of the order
// by probability.
Status Sampler::Select(const LogitsRow& logits, const SampleContext& context) {
    WEFT_TRY(SelectTopK(logits, context));
    if (greedy()) return {};
    if (options_.typical_p < 1) CutTypical();
    if (options_.top_p < 1) CutTopP();
    if (options_.min_p > 0) {
        const double least = double{best_} + std::log(double{options_.min_p});
        Keep(static_cast<float>(least), [](float) { return true; });
    }
    if (options_.xtc()) CutXtc();
    return {};
}

// Greedy: the best token.
Status Sampler::SelectTopK(const LogitsRow& row, const SampleContext& context) {
    WEFT_CHECK(row.size() > 0);
    const bool masked = !context.allowed.empty();
    if (const size_t top = TopK(row.size(), masked); top > 0) {
        candidates_.resize(top);
        WEFT_TRY(row.Top(candidates_));
        SetCandidates();
        return CheckBest(best_);
    }
    const size_t asked = greedy() ? 1 : static_cast<size_t>(options_.top_k);
    const size_t k = asked == 0 ? row.size() : std::min(row.size(), asked);
    std::span<const float> logits;
    if (Adjusts(masked)) {
        WEFT_TRY(row.CopyTo(adjusted_));
        WEFT_TRY(Adjust(context));
        logits = adjusted_;
    } else {
        WEFT_ASSIGN(logits, row.All());
    }
    candidates_.resize(k < row.size() ? k : 1);
    backend::TopK(logits, candidates_);
    if (k < row.size()) {
        SetCandidates();
    } else {
        all_ = true;
        values_ = logits;
        best_ = candidates_[0].value;
    }
    WEFT_TRY(CheckBest(best_));
    // (Both cut the tail, so top-k may come first.)
    if (options_.top_n_sigma > 0 && !greedy()) {
        Keep(LeastOfSigma(logits, best_, options_.top_n_sigma), [](float) { return true; });
    }
    return {};
}

// The tokens that may be drawn are candidates_, best first.
void Sampler::SetCandidates() {
    all_ = false;
    ids_.clear();
    kept_.clear();
    for (const Candidate& candidate : candidates_) {
        ids_.push_back(candidate.index);
        kept_.push_back(candidate.value);
    }
    values_ = kept_;
    best_ = kept_[0];
}

// Keeps the best candidates that together reach top_p of the total weight, at least one.
void Sampler::CutTopP() {
    weights_.Set(values_, best_, 1);
    cut_.Set(values_, weights_, options_.top_p);
    Keep(cut_.least(), [&](float value) { return cut_.Keeps(value); });
}

// Keeps the most typical candidates, which may not include the best one.
void Sampler::CutTypical() {
    weights_.Set(values_, best_, 1);
    FindTypical(values_, best_, weights_, options_.typical_p, typical_, indices_);
    KeepFound();
    best_ = *std::ranges::max_element(values_);
}

void Sampler::CutXtc() {
    if (Uniform() >= double{options_.xtc_probability}) return;
    weights_.Set(values_, best_, 1);
    FindWithoutTopChoices(values_, weights_, options_.xtc_threshold, indices_);
    KeepFound();
    best_ = *std::ranges::max_element(values_);
}

// Keeps the candidates of at least `least` that `keeps` accepts.
template <typename Keeps>
void Sampler::Keep(float least, const Keeps& keeps) {
    FindAtLeast(values_, least, indices_);
    std::erase_if(indices_, [&](uint32_t i) { return !keeps(values_[i]); });
    KeepFound();
}

// Keeps the candidates at indices_, which ascend. A place is read before it is written, so values_
// may be in kept_.
void Sampler::KeepFound() {
    if (kept_.size() < indices_.size()) kept_.resize(indices_.size());
    if (ids_.size() < indices_.size()) ids_.resize(indices_.size());
    size_t count = 0;
    for (const uint32_t i : indices_) {
        const float value = values_[i];
        ids_[count] = IdOf(i);
        kept_[count++] = value;
    }
    all_ = false;
    values_ = std::span(kept_).first(count);
}

// uniform: in [0, 1).
int32_t Sampler::Draw(double uniform) {
    weights_.Set(values_, best_, 1 / options_.temperature);
    return IdOf(weights_.Find(uniform));
}

Status Sampler::Distribute(const LogitsRow& logits, const SampleContext& context,
                           Distribution& out) {
    WEFT_TRY(Select(logits, context));
    if (takes_best()) {
        out.entries.assign(1, {BestLeft(), 1.0});
        return {};
    }
    double total = 0;
    out.entries.clear();
    for (size_t i = 0; i < values_.size(); ++i) {
        const double weight = std::exp((double{values_[i]} - best_) / options_.temperature);
        if (weight == 0) continue;
        out.entries.push_back({IdOf(i), weight});
        total += weight;
    }
    for (Distribution::Entry& entry : out.entries) entry.chance /= total;
    return {};
}

// With rounding, the probabilities may sum to slightly less than needed; then the last token is
// drawn.
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
    // p and q differ only by rounding, so the rejection carries no information.
    return {false, DrawFrom(rest_.entries.empty() ? p : rest_)};
}

}  // namespace weft::engine
