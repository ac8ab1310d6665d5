// Decodes tokens to text as they arrive, in complete code points.
//
// If a token ends inside a code point, its bytes are held back until the next token. Invalid bytes
// become U+FFFD, one for each maximal invalid part as Unicode recommends (chapter 3, "substitution
// of maximal subparts"). The output is always valid UTF-8.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

class StreamDecoder {
  public:
    // `tokenizer` must outlive the decoder. `skip_special` drops control and unknown tokens.
    explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
        : tokenizer_(tokenizer), skip_special_(skip_special) {}

    // Returns the text completed by token `id`; may be empty.
    std::string Push(int32_t id);
    // At the end: returns U+FFFD for an incomplete code point, else nothing. The decoder can then
    // be reused.
    std::string Flush();

  private:
    const Tokenizer& tokenizer_;
    bool skip_special_;
    std::string pending_;  // at most 3 bytes of an incomplete code point
};

}  // namespace weft::tokenizer
