// The key of a cluster as words that a user types: bizol-ganup-kivat-...
//
// Six words of five letters carry 16 bits each, consonants and vowels in turn (proquints,
// arXiv:0901.4016): 88 bits from the kernel, and 8 of their SHA-256, by which a mistyped word is
// noticed. The words themselves are the key: what a file of a key holds is this text, and whoever
// records what goes over the wire has to try 2^88 of them. Nothing shorter would do without a PAKE,
// since a beacon that is signed can be tried against offline.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::fleet {

inline constexpr size_t kKeyWords = 6;

// "bizol-ganup-kivat-sotud-famir-lubos".
std::string NewKeyPhrase();
// What was typed, in whatever case, with spaces or hyphens between. Errors: kUsage, with the word
// that is none, how many there are, or that one of them is mistyped.
Result<std::string> ParseKeyPhrase(const std::vector<std::string>& typed);
// Whether a key is of this form, so that it can be told to others.
bool IsKeyPhrase(const std::string& key);

}  // namespace weft::fleet
