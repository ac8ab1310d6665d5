// Finds special tokens in text: at each place the longest that starts there, from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::tokenizer {

class SpecialScanner {
  public:
    struct Entry {
        std::string_view text;  // not empty; must outlive the scanner
        int32_t id;
        bool takes_left = false;   // and the white space in front of it
        bool takes_right = false;  // and the white space behind it
        bool single_word = false;  // not beside a letter, digit or underscore
    };
    struct Found {
        size_t at;
        size_t size;
        int32_t id;       // -1: none in the rest of the text; at is then text.size()
        size_t next = 0;  // where to look on: behind its own text, not the white space it takes
    };

    explicit SpecialScanner(std::vector<Entry> entries);

    // The first special token at or after `from`; with the white space that it takes it begins at
    // or after `floor`. Time: the distance, times the length of the longest entry in the worst
    // case (one comparison a byte in practice).
    Found Next(std::string_view text, size_t from, size_t floor) const;
    Found Next(std::string_view text, size_t from) const { return Next(text, from, from); }
    // Bytes of the longest entry that text[at] begins, 0: none. Without the entries' wishes.
    size_t LengthAt(std::string_view text, size_t at) const;

  private:
    const Entry* LongestAt(std::string_view text, size_t at) const;

    std::vector<Entry> entries_;  // sorted by text
    std::vector<size_t> first_;   // [byte, byte + 1): entries that start with the byte; 257 of them
};

}  // namespace weft::tokenizer
