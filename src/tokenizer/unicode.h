// Code points of UTF-8 text, and the properties needed outside of regular expressions. Categories
// come from utf8proc. An invalid byte counts as U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::tokenizer {

uint32_t PointAt(std::string_view text, size_t at);       // at < text.size()
uint32_t PointBefore(std::string_view text, size_t end);  // 0 < end <= text.size()
void AppendPoint(uint32_t point, std::string& text);

bool IsSpacePoint(uint32_t point);  // White_Space
bool IsMarkPoint(uint32_t point);   // Mn, Mc, Me
bool IsWordPoint(uint32_t point);   // letters, marks, digits, connectors

// Start of the white space that ends at `end`; end of the white space that begins at `begin`.
size_t SpacesBegin(std::string_view text, size_t end);
size_t SpacesEnd(std::string_view text, size_t begin);

}  // namespace weft::tokenizer
