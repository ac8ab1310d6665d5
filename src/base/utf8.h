// UTF-8 by the table of RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

// Bytes of the code point that starts at text[at] (1 to 4), or 0 if the bytes there are not valid
// UTF-8. Precondition: at < text.size().
size_t CodePointLength(std::string_view text, size_t at);

// Bytes of the invalid sequence at text[at], where CodePointLength is 0: the length of a truncated
// code point, else 1. Precondition: at < text.size().
size_t InvalidLength(std::string_view text, size_t at);

// Bytes at the end of `text` (0 to 3) that begin a code point and that more bytes could complete.
size_t IncompleteTail(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace weft
