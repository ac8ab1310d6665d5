#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace weft::tokenizer {
namespace {

constexpr uint32_t kReplacementCode = 0xFFFD;

utf8proc_category_t Category(uint32_t point) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

// Length of the code point or invalid byte that ends at `end`.
size_t LengthBefore(std::string_view text, size_t end) {
    for (size_t length = 1; length <= 4 && length <= end; ++length) {
        if (CodePointLength(text.substr(0, end), end - length) == length) return length;
    }
    return 1;
}

}  // namespace

uint32_t PointAt(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) {
        return static_cast<uint32_t>(static_cast<uint8_t>(text[i]));
    };
    switch (CodePointLength(text, at)) {
        case 1: return byte(at);
        case 2: return (byte(at) & 0x1F) << 6 | (byte(at + 1) & 0x3F);
        case 3: return (byte(at) & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F);
        case 4:
            return (byte(at) & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 |
                   (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F);
    }
    return kReplacementCode;
}

uint32_t PointBefore(std::string_view text, size_t end) {
    return PointAt(text.substr(0, end), end - LengthBefore(text, end));
}

void AppendPoint(uint32_t point, std::string& text) {
    const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (point < 0x80) {
        add(point);
    } else if (point < 0x800) {
        add(0xC0 | point >> 6), add(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        add(0xE0 | point >> 12), add(0x80 | (point >> 6 & 0x3F)), add(0x80 | (point & 0x3F));
    } else {
        add(0xF0 | point >> 18), add(0x80 | (point >> 12 & 0x3F));
        add(0x80 | (point >> 6 & 0x3F)), add(0x80 | (point & 0x3F));
    }
}

bool IsSpacePoint(uint32_t point) {
    return (point >= 0x09 && point <= 0x0D) || point == 0x20 || point == 0x85 || point == 0xA0 ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F || point == 0x3000;
}

bool IsMarkPoint(uint32_t point) {
    const utf8proc_category_t category = Category(point);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

bool IsWordPoint(uint32_t point) {
    const utf8proc_category_t category = Category(point);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           IsMarkPoint(point) || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC;
}

size_t SpacesBegin(std::string_view text, size_t end) {
    while (end > 0 && IsSpacePoint(PointBefore(text, end))) end -= LengthBefore(text, end);
    return end;
}

size_t SpacesEnd(std::string_view text, size_t begin) {
    while (begin < text.size() && IsSpacePoint(PointAt(text, begin))) {
        begin += std::max<size_t>(CodePointLength(text, begin), 1);
    }
    return begin;
}

}  // namespace weft::tokenizer
