// PromptLookup: drafts from the text so far.
//
// It searches the text for earlier copies of its last tokens; the draft is what followed the
// longest match. This drafts well for an answer that quotes, edits or repeats its prompt, and
// rarely for other answers. At each token, drafted or not, it learns the acceptance rate by length
// of match. So each drafted token comes with a probability, which batch/step_drafts.h uses.
//
// Source: prompt lookup decoding (Saxena 2023); acceptance by length of match is Weft's own. Cost
// per token: a hash of a pair of tokens and a few dozen candidates. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/drafting.h"

namespace weft::engine {

class PromptLookup {
  public:
    explicit PromptLookup(std::span<const int32_t> prompt);
    // Drafts at most `most` tokens after `history`, which begins with the prompt and grows only by
    // generated tokens. chances: for each, the probability that it and all earlier ones are
    // accepted.
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
    std::vector<int32_t>
        earlier_;  // by position: end of the previous copy of its pair of tokens; -1: none
    std::unordered_map<uint64_t, int32_t> last_;  // pair of tokens -> end of its last copy
    Match match_;                                 // at the end of text_
    bool in_answer_ = false;                      // the next tokens judge matches
    std::vector<HitRate> rates_;                  // by kind of match
};

}  // namespace weft::engine
