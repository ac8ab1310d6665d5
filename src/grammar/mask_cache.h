// What is known about the places of one grammar with one vocabulary; shared by all Matchers of it.
//
// Of a place (a state with nothing below it on its stack) it keeps the tokens that may come while
// its rule lasts, and the exits: nodes of the trie where the rule may have ended, after which what
// is below on the stack decides. These are few, and are walked each time; where they were many,
// the result is kept for the whole stack.
//
// Bounded: kMostBytes, the longest unused goes first. Thread: any; one lock.
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

// Tokens, as ids or, where they are many, as bits.
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
    std::vector<uint32_t> exits;  // nodes of the trie, with children
    bool too_many = false;        // it takes more steps than any mask may: nothing else is known
};

class MaskCache {
  public:
    static constexpr size_t kMostBytes = 32 << 20;
    // A state, and for results of whole stacks the frames' states below it.
    using Key = std::vector<uint32_t>;

    MaskCache(GrammarPtr grammar, std::shared_ptr<const TokenTrie> trie)
        : grammar_(std::move(grammar)), trie_(std::move(trie)) {}

    const Grammar& grammar() const { return *grammar_; }
    const TokenTrie& trie() const { return *trie_; }

    // nullptr: not there.
    std::shared_ptr<const PlaceMask> Find(const Key& key);
    void Keep(const Key& key, std::shared_ptr<const PlaceMask> mask);

    // A machine to work with, given back by GiveBack.
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
    std::list<Key> used_;  // the last one first
    size_t bytes_ = 0;
    std::vector<std::unique_ptr<Stacks>> idle_;
};

}  // namespace weft::grammar
