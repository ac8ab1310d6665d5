// UTF-8 by the table of RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

// Number of bytes (1 to 4) of the code point that starts at text[at], or 0 if the bytes there are
// not valid UTF-8. Precondition: at < text.size().
size_t CodePointLength(std::string_view text, size_t at);

// For an `at` where CodePointLength is 0: number of bytes of the invalid sequence that starts
// there. It is the length of a truncated code point, or 1 for other invalid bytes. Precondition: at
// < text.size().
size_t InvalidLength(std::string_view text, size_t at);

// Number of bytes (0 to 3) at the end of `text` that begin a code point which more bytes could
// complete.
size_t IncompleteTail(std::string_view text);

bool IsUtf8(std::string_view text);

}  // namespace weft
