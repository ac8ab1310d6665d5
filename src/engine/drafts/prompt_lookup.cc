#include "engine/drafts/prompt_lookup.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::engine {
namespace {

// The shortest match: a single token is no evidence.
constexpr int64_t kLeastMatch = 2;
// Longer matches count as this length.
constexpr int64_t kMostMatch = 64;
constexpr int kMostCandidates = 48;
// Upper bounds of the kinds of match by length (the last kind has no bound), and the initial
// acceptance rate of each kind.
constexpr std::array<int64_t, 5> kKindEnds = {2, 3, 5, 8, 15};
constexpr std::array<double, 6> kPriors = {0.2, 0.3, 0.5, 0.65, 0.8, 0.9};

uint64_t Pair(int32_t first, int32_t second) {
    return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

}  // namespace

PromptLookup::PromptLookup(std::span<const int32_t> prompt) {
    for (const double prior : kPriors) rates_.emplace_back(prior);
    for (const int32_t token : prompt) Add(token);
    Find();
    in_answer_ = true;
}

size_t PromptLookup::KindOf(int64_t length) {
    return static_cast<size_t>(std::ranges::lower_bound(kKindEnds, length) - kKindEnds.begin());
}

// Indexes the pair that ends with the new token.
void PromptLookup::Add(int32_t token) {
    if (in_answer_ && match_.length > 0) {
        const bool hit = text_[static_cast<size_t>(match_.next)] == token;
        rates_[KindOf(match_.length)].Learn(hit);
        match_ = hit ? Match{match_.next + 1, match_.length + 1} : Match{};
    }
    const auto position = static_cast<int32_t>(text_.size());
    text_.push_back(token);
    earlier_.push_back(-1);
    if (position == 0) return;
    const auto [at, is_new] = last_.try_emplace(Pair(text_[text_.size() - 2], token), position);
    if (!is_new) earlier_.back() = std::exchange(at->second, position);
}

// Number of equal tokens before `end` and before the end of the text.
int64_t PromptLookup::Common(int32_t end) const {
    int64_t length = 0;
    const auto at = static_cast<size_t>(end);
    while (length < kMostMatch && static_cast<size_t>(length) <= at &&
           text_[at - static_cast<size_t>(length)] ==
               text_[text_.size() - 1 - static_cast<size_t>(length)]) {
        ++length;
    }
    return length;
}

// Finds the longest match, the latest among equals. A match that is being followed stays unless
// another is longer, because a later search may not reach it again.
void PromptLookup::Find() {
    if (text_.size() < static_cast<size_t>(kLeastMatch)) return;
    Match best = match_;
    best.length = std::min(best.length, kMostMatch);
    int32_t end = earlier_.back();
    for (int i = 0; i < kMostCandidates && end >= 0 && best.length < kMostMatch; ++i) {
        const int64_t length = Common(end);
        if (length >= kLeastMatch && length > best.length) best = {end + 1, length};
        end = earlier_[static_cast<size_t>(end)];
    }
    match_ = best;
}

// Follows the match. It may run into the draft itself: the text then repeats.
void PromptLookup::Guess(std::span<const int32_t> history, int64_t most,
                         std::vector<int32_t>& tokens, std::vector<double>& chances) {
    tokens.clear();
    chances.clear();
    for (size_t i = text_.size(); i < history.size(); ++i) {
        Add(history[i]);
        Find();
    }
    if (match_.length == 0) return;
    double chance = 1;
    const auto next = static_cast<size_t>(match_.next);
    for (size_t i = 0; i < static_cast<size_t>(most); ++i) {
        const size_t at = next + i;
        tokens.push_back(at < text_.size() ? text_[at] : tokens[at - text_.size()]);
        chance *= rates_[KindOf(match_.length + static_cast<int64_t>(i))].value();
        chances.push_back(chance);
    }
}

}  // namespace weft::engine
