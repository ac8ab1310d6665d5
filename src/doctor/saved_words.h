// The words that may stand in a saved snapshot. A word is kept if all of its parts are known: words
// of the kernel, of drivers and of tools (one list in saved_words.cc), numbers, PCI addresses,
// names that the kernel gives to interfaces. IPv4 addresses become those of pseudonyms.h. Every
// other word is dropped, or renamed where a reader counts words or follows a name. So no name,
// serial number, hardware address or token of a host gets into a snapshot, wherever it stands.
#pragma once

#include <string>
#include <string_view>

#include "doctor/pseudonyms.h"

namespace weft::doctor {

enum class UnknownWord { kDrop, kRename };

// The line with its blanks. With real names nothing is renamed: the line itself, printable.
std::string SavedWords(std::string_view line, UnknownWord unknown, Pseudonyms& names);
// Of the first word that holds a number, and of the words before it, the known parts:
// "Linux version 6.17.7-alice-300.fc43.x86_64 (bob@host)" -> "Linux
// version 6.17.7-300.fc43.x86_64".
std::string SavedVersion(std::string_view line, const Pseudonyms& names);
bool IsKnownWord(std::string_view word);
bool IsPciAddress(std::string_view word);  // "0000:01:00.0"

}  // namespace weft::doctor
