// SentencePiece's table of normalization rules, `precompiled_charsmap`: replaces byte sequences,
// the longest match first.
//
// Format, all little-endian: u32 size of the trie in bytes; the trie, a double array of u32 units
// (Darts-clone: each unit holds a node's label and offset); the replacements, each terminated by a
// zero byte. A key's value is the offset of its replacement.
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
    Charsmap() = default;  // no rules
    // kCorrupt: inconsistent sizes. Empty `bytes`: no rules.
    static Result<Charsmap> Read(std::string_view bytes);

    bool empty() const { return units_.empty(); }
    struct Rule {
        size_t size = 0;  // bytes of the text to replace; 0: no rule matches
        std::string_view with;
    };
    // The rule for the longest key that is a prefix of `text`.
    Rule Longest(std::string_view text) const;
    // The rule for the shortest key that is a prefix of `text`, as in Hugging Face's Precompiled.
    Rule Shortest(std::string_view text) const;

  private:
    Rule Find(std::string_view text, bool longest) const;

    std::vector<uint32_t> units_;
    std::string replacements_;  // ends with a zero byte
};

}  // namespace weft::tokenizer
