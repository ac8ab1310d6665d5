// Expressions for parts of JSON: strings, their characters, numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/builder.h"

namespace weft::grammar {

inline constexpr int64_t kMostWhole = 999'999'999'999'999'999;

// One code point of the normalized `set` inside a JSON string: unescaped, or with its one required
// escape (\" \\ \b \f \n \r \t, else \u00XX).
GrammarBuilder::Expr JsonStringPoints(const PointSet& set, GrammarBuilder& builder);

// A byte as written in a JSON string: unchanged or escaped.
std::string JsonSpelt(uint8_t byte);

// Any character of a JSON string in any spelling (a surrogate pair of \u escapes is one character).
// Without `hex`, \uXXXX is not allowed.
GrammarBuilder::Expr JsonCharacter(bool hex, GrammarBuilder& builder);

// Any string in any spelling.
GrammarBuilder::Expr JsonString(GrammarBuilder& builder);

// A string without escapes that is not one of `names` (UTF-8) and does not share its first 64 code
// points with one of them.
GrammarBuilder::Expr JsonStringBut(std::vector<std::string> names, GrammarBuilder& builder);

// An integer of at most 18 digits (kMostWhole), within the given bounds.
GrammarBuilder::Expr JsonInteger(std::optional<int64_t> least, std::optional<int64_t> most,
                                 GrammarBuilder& builder);

// Any number with at most 18 digits, 17 decimals and an exponent of 2 digits.
GrammarBuilder::Expr JsonNumber(GrammarBuilder& builder);

// Any text that does not contain `end` and does not end with a prefix of `end`. Precondition: `end`
// is ASCII, and its first byte occurs in it once.
GrammarBuilder::Expr TextWithout(std::string_view end, GrammarBuilder& builder);

}  // namespace weft::grammar
