// Text from files, peers and other programs, for a terminal: names of tensors and files, metadata,
// errors that quote them.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// On one line: what a terminal would obey, or can't show, as an escape of C. Controls (C0, DEL, C1)
// and bytes that are not UTF-8 become \n, \r, \t or \x1b; what breaks lines or turns the direction
// of writing \u202e. All else is as it was, a backslash, too.
std::string Printable(std::string_view text);

// The same, but for line ends and tabs, which stay.
std::string PrintableLines(std::string_view text);

}  // namespace weft
