// The key of a cluster as words that a user types: bizol-ganup-kivat-...
//
// Six words of five letters carry 16 bits each, with consonants and vowels in turn (proquints,
// arXiv:0901.4016): 88 random bits from the kernel, and 8 bits of their SHA-256, which detect a
// mistyped word. The text itself is the content of the key file. An attacker can test keys offline
// against recorded beacons, so a shorter phrase would need a password-authenticated key exchange
// (PAKE). Guessing this phrase takes 2^88 trials.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::fleet {

inline constexpr size_t kKeyWords = 6;

// "bizol-ganup-kivat-sotud-famir-lubos".
std::string NewKeyPhrase();
// Parses typed words in any case, separated by spaces or hyphens. Errors: kUsage: names an invalid
// word, or states the number of words, or that a word is mistyped.
Result<std::string> ParseKeyPhrase(const std::vector<std::string>& typed);
// Whether a key has this form, so that a user can type it.
bool IsKeyPhrase(const std::string& key);

}  // namespace weft::fleet
