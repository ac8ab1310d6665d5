// Finds the word that a misspelled one was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {

// The optimal string alignment distance: the smallest number of insertions, deletions,
// substitutions and swaps of neighboring characters that turn `a` into `b`. Ignores ASCII case.
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the word with the smallest EditDistance to `word`; among words with the same distance,
// the one with the longest common prefix. At most a third of the characters may differ (one in
// words of two or three). If all words differ more, returns the shortest word that begins with
// `word`, if `word` has at least three characters; otherwise "". Ignores ASCII case.
std::string NearestWord(std::string_view word, std::span<const std::string> words);

// " Did you mean 'run'?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> words);

}  // namespace weft
