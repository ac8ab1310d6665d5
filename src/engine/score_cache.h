// ScoreCache: log-probabilities of prompt tokens, found by their tokens.
//
// A score depends on the earlier tokens and the LoRA adapter only, like a KV row. The scores are
// therefore stored in blocks of a separate PrefixCache, with the same tenants and order of
// eviction. A prompt that begins like a scored one needs logits only from the first difference on.
// Thread: one caller.
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
    // Keeps the scores of about `tokens` tokens.
    explicit ScoreCache(int64_t tokens);

    // Appends the known scores of tokens[have], tokens[have + 1], ... with the `best` likeliest
    // tokens each. have: at least 1, as the first token has no score.
    void Find(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t have, int best,
              std::vector<SaidToken>& scores);
    // scores: of tokens[1] to the last token, with the `best` likeliest tokens each.
    void Keep(const PrefixSpace& space, std::span<const int32_t> tokens, int best,
              std::span<const SaidToken> scores);
    // Number of calls of Keep. Find returns nothing new until it changes.
    int64_t changes() const { return changes_; }

  private:
    struct Block {
        int best = -1;
        std::vector<SaidToken> scores{};
    };
    int32_t Take();
    void Fill(int32_t block, int64_t index, int best, std::span<const SaidToken> scores);
    bool Copy(int32_t block, int64_t begin, int64_t end, int best,
              std::vector<SaidToken>& scores) const;

    PagePool pool_;
    PrefixCache cache_;
    std::vector<Block> blocks_;
    std::vector<int32_t> found_;  // valid in Find and Keep
    int64_t changes_ = 0;
};

}  // namespace weft::engine
