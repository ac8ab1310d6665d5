// Makes text from files, peers and other programs safe to print on a terminal: names of tensors and
// files, metadata, and errors that quote such text.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// Returns the text as one line. Escapes as in C replace characters that a terminal would obey or
// can't show: control characters (C0, DEL, C1) and bytes that are not UTF-8 become \n, \r, \t or
// the form \x1b; Unicode line breaks and marks of writing direction become the form \u202e. All
// other text stays, including backslashes.
std::string Printable(std::string_view text);

// As Printable, but keeps line ends and tabs.
std::string PrintableLines(std::string_view text);

}  // namespace weft
