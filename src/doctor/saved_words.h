// Decides which words may appear in a saved snapshot. A word is kept if all of its parts are known:
// words of the kernel, drivers and tools (a list in saved_words.cc), numbers, PCI addresses, and
// names that the kernel gives to interfaces. IPv4 addresses are replaced (pseudonyms.h). Every
// other word is dropped; or it is renamed, if a parser counts the words of a line or looks for the
// name elsewhere. Therefore no name, serial number, hardware address or token of a host gets into a
// snapshot.
#pragma once

#include <string>
#include <string_view>

#include "doctor/pseudonyms.h"

namespace weft::doctor {

enum class UnknownWord { kDrop, kRename };

// The line without unknown words; blanks stay. With real names: the whole line, made printable.
std::string SavedWords(std::string_view line, UnknownWord unknown, Pseudonyms& names);
// The part of a word of the kernel log that is kept; "": none. Words of log_rules.inc are kept,
// too, in upper or lower case. The filter is stricter: IPv4 addresses, numbers of more than six
// digits and other hexadecimal numbers are dropped.
std::string SavedLogWord(std::string_view word, Pseudonyms& names);
// The known parts of the first word with a number, and the words before it: "Linux version
// 6.17.7-alice-300.fc43.x86_64 (bob@host)" -> "Linux version 6.17.7-300.fc43.x86_64".
std::string SavedVersion(std::string_view line, const Pseudonyms& names);
bool IsKnownWord(std::string_view word);
bool IsPciAddress(std::string_view word);  // "0000:01:00.0", in upper or lower case

}  // namespace weft::doctor
