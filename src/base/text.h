// Splits and changes plain text. Case conversion changes ASCII letters only, in any locale. A
// returned view points into the argument.
#pragma once

#include <concepts>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Blanks are " \t\r\n\v\f".
std::string_view Trim(std::string_view text);
// The lines, without their ends "\n" or "\r\n"; the last line needs no end.
std::vector<std::string_view> Lines(std::string_view text);
// Splits at blanks; omits empty words.
std::vector<std::string_view> Words(std::string_view text);
// Splits at each separator: one piece more than separators.
std::vector<std::string_view> Split(std::string_view text, char separator);

std::string LowerCase(std::string_view text);
std::string UpperCase(std::string_view text);

// The code point that these bytes are. Precondition: valid UTF-8 of one code point.
char32_t CodePointOf(std::string_view bytes);

// A time in UTC, in a format of strftime: "%Y-%m-%dT%H:%M:%SZ". At most 63 characters.
std::string UtcText(std::time_t seconds, const char* format);

// Rejects, at compile time, a view into a temporary string.
template <typename S>
concept Ending = std::same_as<S, std::string>;
void Trim(Ending auto&& text) = delete;
void Lines(Ending auto&& text) = delete;
void Words(Ending auto&& text) = delete;
void Split(Ending auto&& text, char separator) = delete;

}  // namespace weft
