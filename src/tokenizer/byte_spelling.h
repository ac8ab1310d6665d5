// GPT-2's mapping of bytes to printable code points, used by byte-level vocabularies: printable
// Latin-1 maps to itself, the other bytes to U+0100 and following in order. The code point of a
// byte is called its spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::tokenizer {

// The spelling of one byte, as UTF-8.
const std::string& SpelledByte(uint8_t byte);

void AppendSpelled(std::string_view bytes, std::string& text);

// Appends the bytes whose spellings are the code points of `text`. Returns false, and appends
// nothing, if a code point is not a byte's spelling.
bool AppendUnspelled(std::string_view text, std::string& bytes);

}  // namespace weft::tokenizer
