// Prompt look-up: the text so far is its own draft model.
//
// The last tokens are looked for earlier in the text; what followed the longest such match is the
// draft. An answer that quotes, edits or repeats its prompt is drafted well and a free one hardly
// ever. How often matches of one length come true is learned at each token, drafted or not, so that
// each guess comes with its chance; batch/step_drafts.h weighs it.
// Source: prompt look-up decoding (Saxena 2023); acceptance by length of match is Weft's own.
// Cost: a hash of each pair of tokens; a few dozen candidates a token. Thread: one caller.
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
    // At most `most` tokens that may follow `history`, which begins with the prompt and only grows
    // by what the model said; for each how likely it and all before it come true.
    void Guess(std::span<const int32_t> history, int64_t most, std::vector<int32_t>& tokens,
               std::vector<double>& chances);

  private:
    // Where the text may go on as it did before: the position of what came next then, and how many
    // tokens before it are those before the end now. length 0: nowhere.
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
        earlier_;  // by position: where the pair that ends there ended before, or -1
    std::unordered_map<uint64_t, int32_t> last_;  // pair of tokens -> where it ended last
    Match match_;                                 // at the end of text_
    bool in_answer_ = false;                      // matches are judged
    std::vector<HitRate> rates_;                  // by kind
};

}  // namespace weft::engine
