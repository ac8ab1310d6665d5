// The word that a misspelt one was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace weft {

// The fewest insertions, deletions, changes and swaps of neighbouring letters that make `b` of `a`
// (the optimal string alignment distance). Letters compare regardless of ASCII case.
size_t EditDistance(std::string_view a, std::string_view b);

// Of `words` the one that the fewest insertions, deletions, changes and swaps of neighbouring
// letters make of `word`; of several the one that begins most like it. Where none is near - a third
// of the letters may be wrong, one of two or three - the shortest that `word` is the beginning of,
// if that is three letters at least; else empty. Letters compare regardless of ASCII case.
std::string NearestWord(std::string_view word, std::span<const std::string> words);

// " Did you mean 'run'?" or "".
std::string DidYouMean(std::string_view word, std::span<const std::string> words);

}  // namespace weft
