// Makes text from files, peers and other programs safe to print on a terminal: names of tensors and
// files, metadata, errors that quote them.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// One line, with C escapes for characters that a terminal would obey or can't show: controls (C0,
// DEL, C1) and bytes that are not UTF-8 become \n, \r, \t or \x1b; line breaks and marks of writing
// direction become \u202e. All other text stays, including backslashes.
std::string Printable(std::string_view text);

// As Printable, but line ends and tabs stay.
std::string PrintableLines(std::string_view text);

}  // namespace weft
