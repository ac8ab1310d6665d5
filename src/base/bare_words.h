// JSON as Python writes it: non-finite numbers are bare words, which JSON lacks.
#pragma once

#include <string>
#include <string_view>

namespace weft {

// The text with Infinity, -Infinity and NaN outside of strings replaced by the form of transformers
// 5, {"__float__": "Infinity"}. Readers of a model folder's JSON files call it first. Time: linear.
std::string WithoutBareWords(std::string_view text);

}  // namespace weft
