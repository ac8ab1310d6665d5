// ScoreCache: log-probabilities of the tokens of prompts, found again by their tokens.
//
// A score depends on the tokens before it, the LoRA adapter, and nothing else, as a KV row does. So
// the scores stand in blocks of a PrefixCache of their own, with its tenants and its order of
// eviction. A prompt that begins like one that was scored before needs logits only from where the
// two differ. Thread: one caller.
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

    // Appends the scores of tokens[have], tokens[have + 1], ... to `scores`, as far as they are
    // known with the `best` likeliest tokens each. have: at least 1; the first token has no score.
    void Find(const PrefixSpace& space, std::span<const int32_t> tokens, int64_t have, int best,
              std::vector<SaidToken>& scores);
    // scores: of tokens[1], tokens[2], ... to the last, with the `best` likeliest tokens each.
    void Keep(const PrefixSpace& space, std::span<const int32_t> tokens, int best,
              std::span<const SaidToken> scores);
    // How often Keep was called: until it is called again, Find finds no more.
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
    std::vector<int32_t> found_;  // while Find and Keep work
    int64_t changes_ = 0;
};

}  // namespace weft::engine
