// GPT-2's spelling of bytes as printable code points, in which byte-level vocabularies are written:
// printable Latin-1 stands for itself, the other bytes follow from U+0100 in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::tokenizer {

// The spelling of one byte, as UTF-8.
const std::string& SpelledByte(uint8_t byte);

void AppendSpelled(std::string_view bytes, std::string& text);

// The bytes that `text` spells, appended; false, with nothing appended, where a code point spells
// no byte.
bool AppendUnspelled(std::string_view text, std::string& bytes);

}  // namespace weft::tokenizer
