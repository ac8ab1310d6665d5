// Words that may appear in a saved snapshot. A word is kept if all of its parts are known: words of
// the kernel, drivers and tools (one list in saved_words.cc), numbers, PCI addresses, and kernel
// names of interfaces. IPv4 addresses become those of pseudonyms.h. Every other word is dropped, or
// renamed if a reader counts words or follows a name. Therefore no name, serial number, hardware
// address or token of a host gets into a snapshot.
#pragma once

#include <string>
#include <string_view>

#include "doctor/pseudonyms.h"

namespace weft::doctor {

enum class UnknownWord { kDrop, kRename };

// The line with its blanks. With real names: the line itself, printable.
std::string SavedWords(std::string_view line, UnknownWord unknown, Pseudonyms& names);
// The kept part of a word of the kernel's log: also words of log_rules.inc, in any case; "": none.
std::string SavedLogWord(std::string_view word, Pseudonyms& names);
// The known parts of the first word with a number, and the words before it: "Linux version
// 6.17.7-alice-300.fc43.x86_64 (bob@host)" -> "Linux version 6.17.7-300.fc43.x86_64".
std::string SavedVersion(std::string_view line, const Pseudonyms& names);
bool IsKnownWord(std::string_view word);
bool IsPciAddress(std::string_view word);  // "0000:01:00.0"

}  // namespace weft::doctor
