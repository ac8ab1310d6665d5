// Finds special tokens in text from left to right; the longest match at each position wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::tokenizer {

class SpecialScanner {
  public:
    struct Entry {
        std::string_view text;  // not empty; its owner must outlive the scanner
        int32_t id;
        bool takes_left = false;   // also consumes the white space before it
        bool takes_right = false;  // also consumes the white space after it
        bool single_word = false;  // does not match next to a letter, digit or underscore
    };
    struct Found {
        size_t at;
        size_t size;
        int32_t id;  // -1: no more matches; at is then text.size()
        // where to continue: after the token's text, before the white space that the token includes
        size_t next = 0;
    };

    explicit SpecialScanner(std::vector<Entry> entries);

    // The first special token at or after `from`; the white space that the token includes begins at
    // or after `floor`. Time is proportional to the distance, in the worst case times the length of
    // the longest entry (in practice one comparison per byte).
    Found Next(std::string_view text, size_t from, size_t floor) const;
    Found Next(std::string_view text, size_t from) const { return Next(text, from, from); }
    // Length of the longest entry at text[at], ignoring its white-space options; 0: none.
    size_t LengthAt(std::string_view text, size_t at) const;

  private:
    const Entry* LongestAt(std::string_view text, size_t at) const;

    std::vector<Entry> entries_;  // sorted by text
    // entries that start with byte b are [first_[b], first_[b + 1]); 257 elements
    std::vector<size_t> first_;
};

}  // namespace weft::tokenizer
