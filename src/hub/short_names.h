// Resolves a MODEL argument: a path, a model of the Hub with or without "hf:", or a short name.
//
//     models/a.gguf              an existing path takes precedence
//     qwen3:8b                   hf:Qwen/Qwen3-8B-GGUF:Q4_K_M, by models/short_names.txt
//     Qwen/Qwen3-8B-GGUF:Q4_K_M  hf:Qwen/Qwen3-8B-GGUF:Q4_K_M
//
// The table is compiled in.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft::hub {

struct ShortName {
    std::string_view name, model;  // "qwen3:8b", "hf:..."
};

// All short names, in the file's order.
std::span<const ShortName> ShortNames();

// The model that the short name `word` stands for, ignoring case; any other word unchanged.
std::string ExpandShortName(const std::string& word);
// `word` with "hf:" if it names a model of the Hub. Returns other words unchanged, such as paths
// (that exist, begin with '.', '/' or '~', or have the extension of a weight file).
std::string MeantBy(const std::string& word);
// " Did you mean 'qwen3:8b'?", or the short names that begin with the word, or "".
std::string ShortNameHint(const std::string& word);

}  // namespace weft::hub
