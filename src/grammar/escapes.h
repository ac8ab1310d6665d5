// Parses numbers in grammars and regular expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "grammar/point_set.h"

namespace weft::grammar {

// Parses exactly `digits` hexadecimal digits (at most 8) at text[at].
inline std::optional<uint32_t> HexNumber(std::string_view text, size_t at, size_t digits) {
    if (at > text.size() || text.size() - at < digits) return std::nullopt;
    uint32_t number = 0;
    for (const char c : text.substr(at, digits)) {
        uint32_t digit = 0;
        if (c >= '0' && c <= '9') {
            digit = static_cast<uint32_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = static_cast<uint32_t>(c - 'a' + 10);
        } else if (c >= 'A' && c <= 'F') {
            digit = static_cast<uint32_t>(c - 'A' + 10);
        } else {
            return std::nullopt;
        }
        number = number << 4 | digit;
    }
    return number;
}

// Parses the decimal number at text[at] and moves `at` past it. nullopt, with `at` unchanged: no
// digits, or above `most` (at most 10^8).
inline std::optional<uint32_t> DecimalNumber(std::string_view text, size_t& at, uint32_t most) {
    uint32_t number = 0;
    size_t end = at;
    for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end) {
        number = number * 10 + static_cast<uint32_t>(text[end] - '0');
        if (number > most) return std::nullopt;
    }
    if (end == at) return std::nullopt;
    at = end;
    return number;
}

// Whether `point` is a Unicode scalar value: at most U+10FFFF and not a surrogate.
inline bool IsPoint(uint32_t point) {
    return point <= kMostPoint && (point < 0xD800 || point > 0xDFFF);
}

}  // namespace weft::grammar
