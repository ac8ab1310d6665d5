// Constrained generation: computes which tokens may come next so that the text follows a grammar.
//
//     WEFT_ASSIGN(GrammarPtr grammar, GrammarFromGbnf(text));       // or JSON schema, or regex
//     const auto trie = TokenTrie::Make(tokenizer);                 // once per model
//     WEFT_ASSIGN(const Matcher fresh, Matcher::Make(grammar, trie));
//     Matcher matcher = fresh;                                      // once per generation
//     WEFT_TRY(matcher.Allowed(bits));                              // then sample one of these
//     WEFT_TRY(matcher.Accept(token));
//
// State: a set of distinct stacks, which hold the grammar states at which to continue when a rule
// ends. A copy is independent and cheap (a few hundred bytes); copy a Matcher before speculative
// tokens. Copies share a cache of masks, limited to 32 MB. Keep a grammar's first Matcher and copy
// it, so that later requests use the cache.
//
// Cost of Allowed: a few microseconds for cached states; otherwise a walk over the tokens that may
// follow (inside a string, over the whole vocabulary).
//
// Limits: rules nested deeper than 500 are not offered. More than 1000 stacks at a time, or a mask
// of more than kMostMaskSteps, is an error; such places are remembered.
// Thread: one caller per Matcher; copies may be used on different threads (the cache has a lock).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"
#include "grammar/stacks.h"
#include "grammar/token_trie.h"

namespace weft::grammar {

class MaskCache;

class Matcher {
  public:
    static constexpr uint64_t kMostMaskSteps = 8'000'000;

    // Errors: kUnsupported if there are too many stacks at the start of the grammar.
    static Result<Matcher> Make(GrammarPtr grammar, std::shared_ptr<const TokenTrie> trie);

    // Computes the mask of the tokens that may come next: tokens whose bytes may all come next, and
    // the end tokens if CanEnd(). After an end token was accepted, only end tokens may come. Bit t
    // % 32 of bits[t / 32] is token t. `bits` has at least mask_words() words; further words are
    // zeroed.
    // kUnsupported: no token is possible (the vocabulary lacks required bytes), or the grammar is
    // too ambiguous here; the message states which.
    // steps: if given, incremented by the steps taken, about 20 ns each.
    Status Allowed(std::span<uint32_t> bits, uint64_t* steps = nullptr) const;
    // Advances by one token. kUsage: the token is not allowed; the state is unchanged.
    // kUnsupported: the grammar is too ambiguous here.
    Status Accept(int32_t token, uint64_t* steps = nullptr);

    bool CanEnd() const { return can_end_; }  // the text so far is complete
    // Whether only an end token may come next, or an end token was accepted.
    bool Ended() const { return ended_ || (can_end_ && !live_); }

    // Size shared by the copies: the grammar and the cache.
    size_t size_bytes() const;

  private:
    Matcher(std::shared_ptr<MaskCache> cache) : cache_(std::move(cache)) {}
    void Take(const Stacks& stacks, size_t level);
    std::vector<uint32_t> WholeKey() const;
    Error TooAmbiguous() const;
    Error NoToken() const;

    std::shared_ptr<MaskCache> cache_;
    std::vector<Stacks::Frame> frames_;  // [0] is the bottom
    std::vector<Stacks::Head> heads_;    // heads with bytes
    bool can_end_ = false;
    bool live_ = false;
    bool ended_ = false;
};

// Whether the whole text matches the grammar. kUnsupported: too ambiguous.
Result<bool> Matches(const Grammar& grammar, std::string_view text);

}  // namespace weft::grammar
