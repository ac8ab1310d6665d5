#include "base/printable.h"

#include <fmt/format.h>

#include <iterator>

#include "base/text.h"
#include "base/utf8.h"

namespace weft {
namespace {

// Line and paragraph separators, and marks, embeddings, overrides and isolates of direction.
bool MovesText(char32_t code) {
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
        const char32_t code = length == 0 ? 0 : CodePointOf(bytes);
        const bool stays = lines && (code == '\n' || code == '\t');
        if (code >= 0x80 && MovesText(code)) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", uint32_t{code});
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
