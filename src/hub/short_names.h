// What a MODEL word means: a path, a model of the Hub with or without "hf:", or a short name.
//
//     models/a.gguf              a path that is there always wins
//     qwen3:8b                   hf:Qwen/Qwen3-8B-GGUF:Q4_K_M, by models/short_names.txt
//     Qwen/Qwen3-8B-GGUF:Q4_K_M  hf:Qwen/Qwen3-8B-GGUF:Q4_K_M
//
// The table is part of the program; changing it takes a build.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::hub {

struct ShortName {
    std::string_view name, model;  // "qwen3:8b", "hf:..."
};

// In the file's order.
std::span<const ShortName> ShortNames();

// `word`, or what the short name stands for, in whatever case it is written.
std::string ExpandShortName(const std::string& word);
// The word with "hf:" where it means a model of the Hub; otherwise the word as it is: a path (that
// is there, begins with '.', '/' or '~', or ends as a file of weights), or of some other kind.
std::string MeantBy(const std::string& word);
// " Did you mean 'qwen3:8b'?", or the short names that begin with the word, or "".
std::string ShortNameHint(const std::string& word);

}  // namespace weft::hub
