#include "engine/batch/step_drafts.h"

#include <algorithm>

namespace weft::engine {
namespace {

// Guesses beyond these cost as much as other rows do, on every CPU there is.
constexpr int64_t kMostRows = 64;
// Guesses that gain less than this are left: the estimates are not that good.
constexpr double kLeastGain = 1.05;
// What guesses cost may have been learned in a bad moment: after so many steps without any, some
// are tried, as many as half of the other rows or so few.
constexpr int64_t kRetry = 256;
constexpr int64_t kRetryRows = 4;

// As far as the matcher lets them.
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

int64_t StepDrafts::most_rows() const {
    return on() ? std::max(kMostRows, options_.most()) : 0;
}

// Steps of almost as many rows are one kind: there are not that many of each to learn from.
int64_t StepDrafts::RowsKind(int64_t rows) {
    const int64_t grain = rows <= 16 ? 1 : rows <= 64 ? 4 : 16;
    return (rows + grain - 1) / grain * grain;
}

// How many of guesses_ pay in a step that has so many rows without them.
size_t StepDrafts::Best(int64_t rows) const {
    if (without_ >= kRetry) {
        const int64_t most = std::max(kRetryRows, rows / 2);
        return std::min(guesses_.size(), static_cast<size_t>(most));
    }
    const double plain = costs_.Of(rows);
    if (plain <= 0) return 0;  // this step will tell
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

void StepDrafts::Choose(std::span<const Guesser> guessers) {
    guesses_.clear();
    for (size_t i = 0; i < guessers.size(); ++i) {
        const Guesser& g = guessers[i];
        g.draft->clear();
        const int64_t most = std::min(g.left, options_.most());
        if (most <= 0) continue;
        g.lookup->Guess(g.text, most, *g.draft, chances_);
        if (g.matcher != nullptr) CutToGrammar(*g.matcher, *g.draft);
        for (size_t k = 0; k < g.draft->size(); ++k) guesses_.push_back({chances_[k], i});
    }
    // Chances of one draft never rise: the best guesses are the beginnings of drafts.
    std::ranges::stable_sort(guesses_, std::ranges::greater(), &Guess::chance);
    guesses_.resize(std::min(guesses_.size(), static_cast<size_t>(most_rows())));
    const size_t best =
        options_.always ? guesses_.size() : Best(static_cast<int64_t>(guessers.size()));
    if (!guesses_.empty()) without_ = best > 0 ? 0 : without_ + 1;
    taken_.assign(guessers.size(), 0);
    for (size_t i = 0; i < best; ++i) ++taken_[guesses_[i].guesser];
    for (size_t i = 0; i < guessers.size(); ++i) {
        std::vector<int32_t>& draft = *guessers[i].draft;
        draft.resize(std::min(draft.size(), taken_[i]));
    }
}

void StepDrafts::Count(int64_t drafted, int64_t accepted) {
    if (drafted == 0) return;
    ++counts_.drafts;
    counts_.drafted += drafted;
    counts_.accepted += accepted;
    for (size_t i = 0; i < static_cast<size_t>(accepted); ++i) ++counts_.by_place[i];
}

}  // namespace weft::engine
