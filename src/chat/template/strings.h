// Python's string operations: positions count code points (an invalid byte counts as one); white
// space and case follow Unicode. Substrings and joins keep the source of each byte (text.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "chat/template/value.h"

namespace weft::chat::jinja {

// Byte offset after the code point at text[at].
size_t NextPoint(std::string_view text, size_t at);
size_t CountPoints(std::string_view text);
// Byte offset of code point `index`; text.size() if there are fewer.
size_t PointOffset(std::string_view text, size_t index);
// The code point at text[at]; an invalid byte gives its own value.
int32_t PointAt(std::string_view text, size_t at);

// Byte offset of `needle` in `text` from `from` on, or npos. Linear time, charged to the meter.
size_t FindIn(Meter& meter, std::string_view text, std::string_view needle, size_t from);

// Byte offset of the last `needle` in `text`, or npos. Linear time, charged to the meter.
size_t FindLast(Meter& meter, std::string_view text, std::string_view needle);

enum class Ends { kLeft, kRight, kBoth };
// The range that remains after removing `chars` (nullopt: white space) from the ends.
TextRange Strip(Meter& meter, std::string_view text, Ends ends,
                std::optional<std::string_view> chars);

enum class Case {
    kUpper,
    kLower,
    kCapital,    // str.capitalize(): the first letter
    kFolded,     // str.casefold()
    kTitle,      // str.title(): each letter after a character without case
    kTitleWord,  // filter `title`: letters after spaces, hyphens and brackets
};
Value ChangeCase(Meter& meter, const Text& text, Case to);

// At most `most` splits (negative: unlimited). Without a separator: splits at white space.
Value Split(Meter& meter, const Text& text, std::optional<std::string_view> separator,
            int64_t most);
// As Split, but from the right.
Value SplitRight(Meter& meter, const Text& text, std::optional<std::string_view> separator,
                 int64_t most);
Value SplitLines(Meter& meter, const Text& text, bool keep_ends);

// Adds `with` at the ends until the text has `width` characters. kBoth: str.center().
Value Pad(Meter& meter, const Text& text, int64_t width, Ends ends, char with = ' ');

Value Replace(Meter& meter, const Text& text, std::string_view from, const Text& to, int64_t most);

}  // namespace weft::chat::jinja
