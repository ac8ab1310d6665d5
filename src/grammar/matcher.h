// Constrained generation: which tokens may come next, so that the text follows a grammar.
//
//     WEFT_ASSIGN(GrammarPtr grammar, GrammarFromGbnf(text));       // or JSON schema, or regex
//     const auto trie = TokenTrie::Make(tokenizer);                 // once a model
//     WEFT_ASSIGN(const Matcher fresh, Matcher::Make(grammar, trie));
//     Matcher matcher = fresh;                                      // once a generation
//     WEFT_TRY(matcher.Allowed(bits));                              // then sample one of these
//     WEFT_TRY(matcher.Accept(token));
//
// The state is a set of stacks of places in the grammar where it goes on when a rule ends; equal
// ones are one. A copy is cheap (some hundred bytes) and independent: take one before speculation.
// Copies share a cache of what was found out about the grammar's states, bounded to 32 MB; keep
// the first Matcher of a grammar and copy it, so that later requests find the cache warm.
//
// Cost of Allowed: a few microseconds where the states are known; the first time in a state a
// walk over the tokens that may come there (a string's inside: over the whole vocabulary).
//
// Bounds: nesting deeper than 500 open rules is not offered; more than 1000 stacks at a time, or a
// mask that takes more than kMostMaskSteps, is an error; a place where that is so is remembered.
// Thread: one caller a Matcher; copies may be used on different threads (the cache has a lock).
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

    // kUnsupported: the grammar has too many beginnings.
    static Result<Matcher> Make(GrammarPtr grammar, std::shared_ptr<const TokenTrie> trie);

    // Fills `bits` (bit t % 32 of word t / 32 is token t; at least mask_words() words, the rest
    // zeroed): tokens all of whose bytes may come next, and the tokens that end a generation
    // exactly where CanEnd(). After an end has been accepted: those only.
    // kUnsupported: no token may come (the vocabulary lacks bytes that the grammar needs), or the
    // grammar is too ambiguous here. The message says which.
    // steps: where given, what it took is added: some 20 ns each.
    Status Allowed(std::span<uint32_t> bits, uint64_t* steps = nullptr) const;
    // Goes on by a token. kUsage: it is not allowed here (the state stays as it was);
    // kUnsupported: too ambiguous, as above.
    Status Accept(int32_t token, uint64_t* steps = nullptr);

    bool CanEnd() const { return can_end_; }  // the text so far follows the grammar
    // Nothing but an end may follow, or has been accepted.
    bool Ended() const { return ended_ || (can_end_ && !live_); }

    // What the copies of it share: the grammar, and what the cache has found out about it so far.
    size_t size_bytes() const;

  private:
    Matcher(std::shared_ptr<MaskCache> cache) : cache_(std::move(cache)) {}
    void Take(const Stacks& stacks, size_t level);
    std::vector<uint32_t> WholeKey() const;
    Error TooAmbiguous() const;
    Error NoToken() const;

    std::shared_ptr<MaskCache> cache_;
    std::vector<Stacks::Frame> frames_;  // [0] is the bottom
    std::vector<Stacks::Head> heads_;    // those with bytes
    bool can_end_ = false;
    bool live_ = false;
    bool ended_ = false;
};

// Whether the whole text follows the grammar. kUnsupported: too ambiguous.
Result<bool> Matches(const Grammar& grammar, std::string_view text);

}  // namespace weft::grammar
