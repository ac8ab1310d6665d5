// Splits a request's target into path and query.
#include <algorithm>

#include "serve/http/parser.h"

namespace weft::serve {
namespace {

int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Whether the text is valid UTF-8 (RFC 3629): no overlong forms, surrogates or code points beyond
// 10FFFF.
bool IsUtf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const auto first = static_cast<unsigned char>(text[at]);
        const size_t length = first < 0x80           ? 1
                              : (first >> 5) == 0x6  ? 2
                              : (first >> 4) == 0xe  ? 3
                              : (first >> 3) == 0x1e ? 4
                                                     : 0;
        if (length == 0 || length > text.size() - at) return false;
        uint32_t point = length == 1 ? first : first & (0x7fu >> length);
        for (size_t i = 1; i < length; ++i) {
            const auto next = static_cast<unsigned char>(text[at + i]);
            if ((next >> 6) != 2) return false;
            point = point << 6 | (next & 0x3f);
        }
        static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
        if (point < kLeast[length] || point > 0x10ffff) return false;
        if (point >= 0xd800 && point <= 0xdfff) return false;
        at += length;
    }
    return true;
}

Result<std::string> Decode(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '%') {
            out += text[at];
            continue;
        }
        const int high = at + 2 < text.size() ? HexDigit(text[at + 1]) : -1;
        const int low = at + 2 < text.size() ? HexDigit(text[at + 2]) : -1;
        if (high < 0 || low < 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "the path has a '%' without two hexadecimal digits after it");
        }
        out += static_cast<char>(high * 16 + low);
        at += 2;
    }
    return out;
}

Status CheckPath(std::string_view path) {
    for (char c : path) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') {
            return MakeError(ErrorCode::kCorrupt,
                             "the path contains NUL, a control character or a backslash");
        }
    }
    if (!IsUtf8(path)) return MakeError(ErrorCode::kCorrupt, "the path is not valid UTF-8");
    for (size_t at = 0; at < path.size();) {
        const size_t end = std::min(path.find('/', at + 1), path.size());
        const std::string_view segment = path.substr(at + 1, end - at - 1);
        if (segment == "." || segment == "..") {
            return MakeError(ErrorCode::kCorrupt, "the path has a segment '{}'", segment);
        }
        at = end;
    }
    return {};
}

}  // namespace

Result<void> SplitTarget(std::string_view target, std::string& path, std::string& query) {
    if (target == "*") {
        path = target;
        return {};
    }
    for (const char* scheme : {"http://", "https://"}) {
        const std::string_view prefix = scheme;
        if (!SameName(target.substr(0, prefix.size()), prefix)) continue;
        target.remove_prefix(std::min(target.find_first_of("/?", prefix.size()), target.size()));
        if (target.empty()) target = "/";
        break;
    }
    if (target.empty() || target[0] != '/') {
        return MakeError(ErrorCode::kCorrupt,
                         "the target of the request is not a path: it must begin with '/'");
    }
    if (target.find('#') != target.npos) {
        return MakeError(ErrorCode::kCorrupt, "the target of the request has a '#'");
    }
    const size_t mark = std::min(target.find('?'), target.size());
    WEFT_ASSIGN(path, Decode(target.substr(0, mark)));
    WEFT_TRY(CheckPath(path));
    if (mark < target.size()) query = target.substr(mark + 1);
    return {};
}

}  // namespace weft::serve
