#include "tokenizer/base64.h"

#include <cstdint>

namespace weft::tokenizer {
namespace {

int Digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    if (c == '+') return 62;
    return c == '/' ? 63 : -1;
}

}  // namespace

bool DecodeBase64(std::string_view text, std::string& bytes) {
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
    if (text.size() % 4 == 1) return false;
    uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const int digit = Digit(c);
        if (digit < 0) return false;
        bits = bits << 6 | static_cast<uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        bytes += static_cast<char>(bits >> count & 0xFF);
    }
    return true;
}

}  // namespace weft::tokenizer
