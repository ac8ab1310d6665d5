#include "engine/batch/step_drafts.h"

#include <algorithm>

namespace weft::engine {
namespace {

// Beyond this, drafted rows cost as much as other rows, on every CPU.
constexpr int64_t kMostRows = 64;
// Steps with a smaller gain have no drafts: the estimates are too coarse.
constexpr double kLeastGain = 1.05;
// The costs of drafts may have been learned at a bad moment: after so many steps without drafts,
// some are tried, as many as half of the other rows or this many.
constexpr int64_t kRetry = 256;
constexpr int64_t kRetryRows = 4;
// Draws of the draft model must be independent of the draws that judge them.
constexpr uint64_t kOtherSeed = 0x9e3779b97f4a7c15;

// Cuts the draft where the matcher rejects it.
void CutToGrammar(const grammar::Matcher& matcher, std::vector<int32_t>& tokens) {
    grammar::Matcher state = matcher;
    size_t good = 0;
    while (good < tokens.size() && !state.Ended() && state.Accept(tokens[good]).ok()) ++good;
    tokens.resize(good);
}

}  // namespace

StepDrafts::StepDrafts(const DraftOptions& options) : options_(options) {
    if (on()) counts_.by_place.resize(static_cast<size_t>(options_.most()));
}

int64_t StepDrafts::most_rows(int64_t sequences) const {
    if (!on()) return 0;
    return std::min(sequences * options_.most(), std::max(kMostRows, options_.most()));
}

AnswerDrafts StepDrafts::Begin(std::span<const int32_t> prompt,
                               const SamplerOptions& sampler) const {
    AnswerDrafts drafts;
    if (options_.lookup) drafts.lookup.emplace(prompt);
    // A greedy draft is certain, and the model's own choice is compared with it.
    const bool judged = options_.judged && sampler.temperature > 0 && sampler.top_k != 1;
    if (options_.model.empty() || !judged) return drafts;
    SamplerOptions own = sampler;
    own.seed ^= kOtherSeed;
    drafts.own.emplace(own);
    return drafts;
}

// Groups similar row counts: there are too few steps of each single count for an estimate.
int64_t StepDrafts::RowsKind(int64_t rows) {
    const int64_t grain = rows <= 16 ? 1 : rows <= 64 ? 4 : 16;
    return (rows + grain - 1) / grain * grain;
}

// Number of guesses_ that pay in a step that has `rows` rows without them.
size_t StepDrafts::Best(int64_t rows) const {
    if (without_ >= kRetry) {
        const int64_t most = std::max(kRetryRows, rows / 2);
        return std::min(guesses_.size(), static_cast<size_t>(most));
    }
    const double plain = costs_.Of(rows);
    if (plain <= 0) return 0;  // this step measures it
    double tokens = static_cast<double>(rows), best_rate = kLeastGain * tokens / plain;
    size_t best = 0;
    for (size_t i = 0; i < guesses_.size(); ++i) {
        tokens += guesses_[i].chance;
        const double rate = tokens / costs_.Of(rows + static_cast<int64_t>(i) + 1);
        if (rate <= best_rate) continue;
        best = i + 1;
        best_rate = rate;
    }
    return best;
}

Status StepDrafts::Choose(std::span<const Guesser> guessers) {
    if (model_ == nullptr) {
        LookUp(guessers);
        return {};
    }
    const Status drawn = Draw(guessers);
    for (const Guesser& g : guessers) {
        if (!drawn.ok()) g.text.draft->clear();
        if (g.matcher != nullptr) CutToGrammar(*g.matcher, *g.text.draft);
    }
    return drawn;
}

void StepDrafts::LookUp(std::span<const Guesser> guessers) {
    guesses_.clear();
    for (size_t i = 0; i < guessers.size(); ++i) {
        const Guesser& g = guessers[i];
        std::vector<int32_t>& draft = *g.text.draft;
        draft.clear();
        const int64_t most = std::min(g.left, options_.most());
        if (most <= 0) continue;
        g.answer->lookup->Guess(g.text.tokens, most, draft, chances_);
        if (g.matcher != nullptr) CutToGrammar(*g.matcher, draft);
        for (size_t k = 0; k < draft.size(); ++k) guesses_.push_back({chances_[k], i});
    }
    // Probabilities never rise within a draft, so the best guesses are beginnings of drafts.
    std::ranges::stable_sort(guesses_, std::ranges::greater(), &Guess::chance);
    const auto rows = static_cast<int64_t>(guessers.size());
    guesses_.resize(std::min(guesses_.size(), static_cast<size_t>(most_rows(rows))));
    const size_t best = options_.always ? guesses_.size() : Best(rows);
    if (!guesses_.empty()) without_ = best > 0 ? 0 : without_ + 1;
    taken_.assign(guessers.size(), 0);
    for (size_t i = 0; i < best; ++i) ++taken_[guesses_[i].guesser];
    for (size_t i = 0; i < guessers.size(); ++i) {
        std::vector<int32_t>& draft = *guessers[i].text.draft;
        draft.resize(std::min(draft.size(), taken_[i]));
    }
}

// Keeps the chosen lengths only if the draft model succeeds. Otherwise the next call chooses them
// again.
Status StepDrafts::Draw(std::span<const Guesser> guessers) {
    texts_.clear();
    lengths_.clear();
    const auto answers = static_cast<int64_t>(guessers.size());
    for (const Guesser& g : guessers) {
        g.text.draft->clear();
        if (!g.answer->length) g.answer->length.emplace(*model_, !g.answer->own);
        lengths_.push_back(*g.answer->length);
        const int64_t most = std::min(g.left, options_.most());
        if (most <= 0) continue;
        DraftText text = g.text;
        text.count =
            options_.always ? most : lengths_.back().Choose(most, answers, costs_, model_->costs());
        if (g.answer->own) {
            text.own = &*g.answer->own;
            text.chances = &g.answer->chances;
        }
        if (text.count > 0) texts_.push_back(text);
    }
    if (!texts_.empty()) WEFT_TRY(model_->Guess(texts_));
    for (size_t i = 0; i < guessers.size(); ++i) *guessers[i].answer->length = lengths_[i];
    return {};
}

void StepDrafts::Count(AnswerDrafts& answer, int64_t drafted, int64_t checked, int64_t accepted) {
    if (answer.length) answer.length->Learn(checked, accepted);
    if (drafted == 0) return;
    ++counts_.drafts;
    counts_.drafted += drafted;
    counts_.accepted += accepted;
    for (size_t i = 0; i < static_cast<size_t>(accepted); ++i) ++counts_.by_place[i];
}

}  // namespace weft::engine
