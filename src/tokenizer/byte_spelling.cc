#include "tokenizer/byte_spelling.h"

#include <array>

#include "base/utf8.h"

namespace weft::tokenizer {
namespace {

struct Spelling {
    std::array<std::string, 256> of_byte;
    std::array<int16_t, 0x144> byte_of;  // by code point; -1: not a byte's spelling
};

Spelling MakeSpelling() {
    Spelling made;
    made.byte_of.fill(-1);
    size_t next = 0x100;
    for (size_t byte = 0; byte < 256; ++byte) {
        const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
        const size_t point = itself ? byte : next++;
        made.byte_of[point] = static_cast<int16_t>(byte);
        made.of_byte[byte] = point < 0x80 ? std::string(1, static_cast<char>(point))
                                          : std::string{static_cast<char>(0xC0 | (point >> 6)),
                                                        static_cast<char>(0x80 | (point & 0x3F))};
    }
    return made;
}

const Spelling& Known() {
    static const Spelling spelling = MakeSpelling();
    return spelling;
}

}  // namespace

const std::string& SpelledByte(uint8_t byte) {
    return Known().of_byte[byte];
}

void AppendSpelled(std::string_view bytes, std::string& text) {
    const Spelling& spelling = Known();
    for (const char c : bytes) text += spelling.of_byte[static_cast<uint8_t>(c)];
}

bool AppendUnspelled(std::string_view text, std::string& bytes) {
    const Spelling& spelling = Known();
    const size_t before = bytes.size();
    for (size_t at = 0; at < text.size();) {
        const size_t length = CodePointLength(text, at);
        const auto lead = static_cast<uint8_t>(text[at]);
        size_t point = spelling.byte_of.size();
        if (length == 1) point = lead;
        if (length == 2) point = (size_t{lead & 0x1Fu} << 6) | (text[at + 1] & 0x3F);
        if (point >= spelling.byte_of.size() || spelling.byte_of[point] < 0) {
            bytes.resize(before);
            return false;
        }
        bytes += static_cast<char>(spelling.byte_of[point]);
        at += length;
    }
    return true;
}

}  // namespace weft::tokenizer
