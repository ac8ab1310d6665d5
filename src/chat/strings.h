// Strings as Python knows them: positions count code points (bytes that are no UTF-8 count one
// each), white space and case are Unicode's. Cutting and joining keep the origin of bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "chat/value.h"

namespace weft::chat::jinja {

// The end of the code point at text[at].
size_t NextPoint(std::string_view text, size_t at);
size_t CountPoints(std::string_view text);
// The byte where code point `index` begins; text.size() where there are not so many.
size_t PointOffset(std::string_view text, size_t index);
// The code point at text[at]; a byte that is no UTF-8 as itself.
int32_t PointAt(std::string_view text, size_t at);

// Where `needle` is in text, from byte `from` on, or npos. Linear time, charged.
size_t FindIn(Meter& meter, std::string_view text, std::string_view needle, size_t from);

bool IsSpace(int32_t point);
// repr() shows it as it is.
bool IsPrintable(int32_t point);
bool IsAlpha(int32_t point);
bool IsUpper(int32_t point);
bool IsLower(int32_t point);

enum class Ends { kLeft, kRight, kBoth };
// What is left after `chars` (white space, where there are none) are taken off the ends.
TextRange Strip(Meter& meter, std::string_view text, Ends ends,
                std::optional<std::string_view> chars);

enum class Case {
    kUpper,
    kLower,
    kCapital,    // str.capitalize(): the first letter
    kTitle,      // str.title(): the first letter after anything that is none
    kTitleWord,  // the filter `title`: the first letter after blanks, hyphens and brackets
};
Value ChangeCase(Meter& meter, const Text& text, Case to);

// At most `most` cuts (negative: any number). Without a separator: at white space.
Value Split(Meter& meter, const Text& text, std::optional<std::string_view> separator,
            int64_t most);
// The same from the right.
Value SplitRight(Meter& meter, const Text& text, std::optional<std::string_view> separator,
                 int64_t most);
Value SplitLines(Meter& meter, const Text& text, bool keep_ends);

Value Replace(Meter& meter, const Text& text, std::string_view from, const Text& to, int64_t most);

}  // namespace weft::chat::jinja
