// Pieces of JSON as expressions: strings and what stands in them, numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/builder.h"

namespace weft::grammar {

inline constexpr int64_t kMostWhole = 999'999'999'999'999'999;

// One code point of the set inside of a JSON string: as it is, or as the one escape that JSON
// needs for it (\" \\ \b \f \n \r \t, else \u00XX). The set is normalized.
GrammarBuilder::Expr JsonStringPoints(const PointSet& set, GrammarBuilder& builder);

// How a byte of a text stands in a JSON string: as it is, or as that escape.
std::string JsonSpelt(uint8_t byte);

// Any character of a JSON string, in any spelling (a pair of \u escapes is one). Without `hex`
// not as \uXXXX.
GrammarBuilder::Expr JsonCharacter(bool hex, GrammarBuilder& builder);

// Any string, in any spelling.
GrammarBuilder::Expr JsonString(GrammarBuilder& builder);

// A string that is none of `names` (UTF-8), without escapes; nor one that shares its first 64 code
// points with one of them.
GrammarBuilder::Expr JsonStringBut(std::vector<std::string> names, GrammarBuilder& builder);

// A whole number of at most 18 digits (kMostWhole), within the bounds that are given.
GrammarBuilder::Expr JsonInteger(std::optional<int64_t> least, std::optional<int64_t> most,
                                 GrammarBuilder& builder);

// Any number: at most 18 digits, 17 behind the point, an exponent of at most 2.
GrammarBuilder::Expr JsonNumber(GrammarBuilder& builder);

// Any text that does not hold `end`, nor ends with a part of it. `end` is ASCII, and its first
// byte comes once in it.
GrammarBuilder::Expr TextWithout(std::string_view end, GrammarBuilder& builder);

}  // namespace weft::grammar
