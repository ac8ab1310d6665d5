// Python's string operations: positions count code points (an invalid byte counts as one); white
// space and case follow Unicode. Substrings and joins keep the source of each byte (text.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "chat/value.h"

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

bool IsSpace(int32_t point);
// Whether repr() shows the character unescaped.
bool IsPrintable(int32_t point);
bool IsAlpha(int32_t point);
bool IsUpper(int32_t point);
bool IsLower(int32_t point);

enum class Ends { kLeft, kRight, kBoth };
// The range left after removing `chars` (nullopt: white space) from the ends.
TextRange Strip(Meter& meter, std::string_view text, Ends ends,
                std::optional<std::string_view> chars);

enum class Case {
    kUpper,
    kLower,
    kCapital,    // str.capitalize(): the first letter
    kTitle,      // str.title(): each letter after a non-letter
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

Value Replace(Meter& meter, const Text& text, std::string_view from, const Text& to, int64_t most);

}  // namespace weft::chat::jinja
