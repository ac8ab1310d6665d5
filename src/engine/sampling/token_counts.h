// TokenCounts: how often each token occurs in the last part of a text that grows.
//
// A sampler counts once per drawn token, so counts are kept between calls: Set counts only tokens
// that differ from the last call's, and otherwise compares memory. Thread: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace weft::engine {

class TokenCounts {
  public:
    struct Entry {
        int32_t id, times;
    };
    // Counts the tokens of `text` from `begin` on. Any text may follow any other; the time is
    // proportional to the tokens that enter and leave.
    void Set(std::span<const int32_t> text, size_t begin);
    // One entry per distinct token, in any order.
    const std::vector<Entry>& entries() const { return entries_; }
    // Number of tokens that were added or removed so far.
    int64_t changes() const { return changes_; }

  private:
    void Add(int32_t id);
    void Remove(int32_t id);

    std::vector<int32_t> text_;    // what was counted: its tokens from head_ on
    size_t head_ = 0, begin_ = 0;  // the first of them, in text_ and in the caller's text
    std::vector<Entry> entries_;
    std::unordered_map<int32_t, size_t> places_;  // in entries_, by token
    int64_t changes_ = 0;
};

}  // namespace weft::engine
