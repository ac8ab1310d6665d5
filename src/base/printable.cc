#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.h"

namespace weft {
namespace {

// The code point of valid UTF-8.
uint32_t CodeOf(std::string_view bytes) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(bytes[at]); };
    if (bytes.size() == 1) return byte(0);
    uint32_t code = byte(0) & (0xffu >> (bytes.size() + 1));
    for (size_t i = 1; i < bytes.size(); ++i) code = code << 6 | (byte(i) & 0x3fu);
    return code;
}

// Line and paragraph separators, and marks, embeddings, overrides and isolates of direction.
bool MovesText(uint32_t code) {
    return code == 0x061c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

void AppendEscape(std::string& out, std::string_view bytes) {
    switch (bytes[0]) {
        case '\n': out += "\\n"; return;
        case '\r': out += "\\r"; return;
        case '\t': out += "\\t"; return;
        default: break;
    }
    for (const char c : bytes) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
}

std::string Shown(std::string_view text, bool lines) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const size_t length = CodePointLength(text, 0);
        const std::string_view bytes = text.substr(0, length == 0 ? 1 : length);
        text.remove_prefix(bytes.size());
        const uint32_t code = length == 0 ? 0 : CodeOf(bytes);
        const bool stays = lines && (code == '\n' || code == '\t');
        if (code >= 0x80 && MovesText(code)) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
        } else if (!stays && (code < 0x20 || (code >= 0x7f && code < 0xa0))) {
            AppendEscape(out, bytes);
        } else {
            out += bytes;
        }
    }
    return out;
}

}  // namespace

std::string Printable(std::string_view text) {
    return Shown(text, false);
}

std::string PrintableLines(std::string_view text) {
    return Shown(text, true);
}

}  // namespace weft
