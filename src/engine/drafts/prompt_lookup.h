// PromptLookup: drafts tokens by searching the text so far.
//
// It searches the text for earlier copies of the last tokens. The draft consists of the tokens that
// follow the longest match. Drafts are often accepted if the answer quotes, edits or repeats its
// prompt; other answers rarely have a match. At each generated token, PromptLookup estimates how
// often matches of each length predict the next token, whether or not it was drafted. So each
// drafted token comes with a probability, which batch/step_drafts.h uses.
//
// Source: prompt lookup decoding (Saxena 2023); the acceptance rates by length of match are Weft's
// own. Cost per token: a hash of a pair of tokens and a few dozen candidates. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/drafts/drafting.h"

namespace weft::engine {

class PromptLookup {
  public:
    explicit PromptLookup(std::span<const int32_t> prompt);
    // Drafts at most `most` tokens after `history`, which is the prompt and the tokens generated
    // since. chances: for each drafted token, the probability that it and all drafted tokens before
    // it are accepted.
    void Guess(std::span<const int32_t> history, int64_t most, std::vector<int32_t>& tokens,
               std::vector<double>& chances);

  private:
    // An earlier copy of the text's end: the position of the token after the copy, and the length
    // of the match in tokens. length 0: no match.
    struct Match {
        int32_t next = 0;
        int64_t length = 0;
    };
    void Add(int32_t token);
    void Find();
    int64_t Common(int32_t end) const;
    static size_t KindOf(int64_t length);

    std::vector<int32_t> text_;
    std::vector<int32_t> earlier_;  // by position: end of the previous copy of the pair of tokens
                                    // that ends there; -1: none
    std::unordered_map<uint64_t, int32_t> last_;  // pair of tokens -> end of its last copy
    Match match_;                                 // at the end of text_
    bool in_answer_ = false;                      // later tokens count in rates_
    std::vector<HitRate> rates_;                  // by kind of match
};

}  // namespace weft::engine
