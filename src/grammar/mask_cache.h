// Cache of token masks for one grammar and vocabulary, shared by all Matchers.
//
// Per place (a state with an empty stack) it stores the tokens that stay within the place's rule,
// and the exits: trie nodes at which the rule may have ended, so that the rest of the stack
// decides. Exits are few, so the walk from the exits is repeated for each mask. If this walk is
// expensive, its result is cached for the whole stack.
//
// Holds at most kMostBytes, and drops the least recently used entries first. Thread: any; one lock.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/stacks.h"
#include "grammar/token_trie.h"

namespace weft::grammar {

// A set of tokens, as a list of ids or, if large, as a bitmap.
class TokenSet {
  public:
    TokenSet() = default;
    explicit TokenSet(std::vector<uint32_t> words);
    void AddTo(std::span<uint32_t> bits) const;
    size_t size_bytes() const { return ids_.size() * 4 + words_.size() * 4; }

  private:
    std::vector<int32_t> ids_;
    std::vector<uint32_t> words_;
};

struct PlaceMask {
    TokenSet tokens;
    std::vector<uint32_t> exits;  // trie nodes with children
    // computing the mask exceeds the step limit; the other members are unset
    bool too_many = false;
};

class MaskCache {
  public:
    static constexpr size_t kMostBytes = 32 << 20;
    // A state; for the result of a whole stack, also the states of the stack's frames.
    using Key = std::vector<uint32_t>;

    MaskCache(GrammarPtr grammar, std::shared_ptr<const TokenTrie> trie)
        : grammar_(std::move(grammar)), trie_(std::move(trie)) {}

    const Grammar& grammar() const { return *grammar_; }
    const TokenTrie& trie() const { return *trie_; }

    // nullptr: not cached.
    std::shared_ptr<const PlaceMask> Find(const Key& key);
    void Keep(const Key& key, std::shared_ptr<const PlaceMask> mask);

    // Borrows a Stacks for a walk; the caller returns it with GiveBack.
    std::unique_ptr<Stacks> Borrow();
    void GiveBack(std::unique_ptr<Stacks> stacks);

    size_t size_bytes() const;

  private:
    struct Hash {
        size_t operator()(const Key& key) const;
    };
    struct Entry {
        std::shared_ptr<const PlaceMask> mask;
        std::list<Key>::iterator used;
    };
    static size_t BytesOf(const Key& key, const PlaceMask& mask);

    const GrammarPtr grammar_;
    const std::shared_ptr<const TokenTrie> trie_;
    mutable std::mutex mutex_;
    std::unordered_map<Key, Entry, Hash> entries_;
    std::list<Key> used_;  // most recently used first
    size_t bytes_ = 0;
    std::vector<std::unique_ptr<Stacks>> idle_;
};

}  // namespace weft::grammar
