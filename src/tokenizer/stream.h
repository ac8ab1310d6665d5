// Turns tokens into text as they come, in whole code points only.
//
// A token may end inside a code point: those bytes wait for the next token. Bytes that can no
// longer become a code point come out as U+FFFD, one for each maximal invalid stretch as Unicode
// recommends (chapter 3, "substitution of maximal subparts"). What comes out is always UTF-8.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

class StreamDecoder {
  public:
    // `tokenizer` must outlive the decoder. `skip_special` leaves out control and unknown tokens.
    explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
        : tokenizer_(tokenizer), skip_special_(skip_special) {}

    // The text that token `id` completes; may be empty.
    std::string Push(int32_t id);
    // The end: U+FFFD for an incomplete code point, else nothing. Ready for a new text after.
    std::string Flush();

  private:
    const Tokenizer& tokenizer_;
    bool skip_special_;
    std::string pending_;  // at most 3 bytes: the start of a code point
};

}  // namespace weft::tokenizer
