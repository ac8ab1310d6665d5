// ScoreCache: log-probabilities ("scores") of the tokens of earlier prompts, for prompts that begin
// with the same tokens.
//
// Like a KV row, a score depends only on the tokens up to its own and on the LoRA adapter. Scores
// are therefore stored in a PrefixCache of their own, whose pages are blocks of scores. As in the
// cache of KV pages, tenants (owners of texts) share nothing, and the least recently used pages are
// evicted first. A prompt that begins like an earlier one needs logits only from the first
// different token on. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch/pages.h"
#include "engine/batch/prefix_cache.h"
#include "engine/request.h"

namespace weft::engine {

class ScoreCache {
  public:
    // The cache holds the scores of about `tokens` tokens.
    explicit ScoreCache(int64_t tokens);

    // Appends the known scores of tokens[have], tokens[have + 1], ..., each with the `best`
    // likeliest tokens. have: at least 1, because the first token has no score.
    void Find(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t have, int best,
              std::vector<GeneratedToken>& scores);
    // Stores the scores of tokens[1] to the last, each with the `best` likeliest tokens.
    void Keep(const PrefixSpace& space, std::span<const int32_t> tokens, int best,
              std::span<const GeneratedToken> scores);
    // Changes when Keep has stored scores. Until then, Find finds nothing new.
    int64_t changes() const { return changes_; }

  private:
    struct Block {
        int best = -1;
        std::vector<GeneratedToken> scores{};
    };
    int32_t Take();
    void Fill(int32_t block, int64_t index, int best, std::span<const GeneratedToken> scores);
    bool Copy(int32_t block, int64_t begin, int64_t end, int best,
              std::vector<GeneratedToken>& scores) const;

    PagePool pool_;
    PrefixCache cache_;
    std::vector<Block> blocks_;
    std::vector<int32_t> found_;  // valid in Find and Keep
    int64_t changes_ = 0;
};

}  // namespace weft::engine
