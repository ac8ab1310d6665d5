// SentencePiece's table of normalization rules, `precompiled_charsmap`: which byte sequences become
// which others, the longest that fits first.
//
// Format: u32 size of the trie in bytes; the trie, a double array of u32 units (Darts-clone: label
// and offset of a node in a unit); then the replacements, each ended by a zero byte. The value of a
// key is where its replacement begins. All little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::tokenizer {

class Charsmap {
  public:
    Charsmap() = default;  // without rules
    // kCorrupt: sizes that do not fit. An empty `bytes` has no rules.
    static Result<Charsmap> Read(std::string_view bytes);

    bool empty() const { return units_.empty(); }
    struct Rule {
        size_t size = 0;  // bytes of the text that it replaces; 0: no rule fits
        std::string_view with;
    };
    // The rule for the longest key that `text` begins with.
    Rule Longest(std::string_view text) const;
    // ... for the shortest, as Hugging Face's Precompiled has it.
    Rule Shortest(std::string_view text) const;

  private:
    Rule Find(std::string_view text, bool longest) const;

    std::vector<uint32_t> units_;
    std::string replacements_;  // ends with a zero byte
};

}  // namespace weft::tokenizer
