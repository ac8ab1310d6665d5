// The pre-tokenizers that GGUF names in `tokenizer.ggml.pre`, with the names of llama.cpp's
// converter.
//
// The regular expressions come from the families' tokenizer.json files, rewritten so that matching
// takes linear time for any text. Case-insensitive contractions ('s, 'S) match ASCII only.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// Traits of a family besides its pre-tokenizer.
struct FamilyTraits {
    bool whole_words = false;  // a word that is a token is used whole, regardless of the merges
    bool adds_bos = false;     // default if the file does not specify it
    bool code_points = false;  // merges code points, with U+2581 for spaces, instead of bytes
};

struct Family {
    PreTokenizer words;
    FamilyTraits traits;
};

// Errors: kUnsupported for an unknown name; the message lists the known names. An empty name means
// "default".
Result<Family> MakeFamily(std::string_view name);
// Returns only the traits of a family; for an unknown name, the traits of "default".
FamilyTraits TraitsOf(std::string_view name);
// The canonical name of a family: "llama3" for "llama-bpe"; empty for an unknown name.
std::string_view FamilyName(std::string_view name);
// All names in alphabetical order, separated by ", ".
std::string FamilyNames();

// Pre-tokenizer of tiktoken files, in PCRE2's dialect with tiktoken's contractions: "kimi-k2",
// "llama-bpe", "qwen" (first generation), "o200k" (GPT-4o).
Result<Family> MakeTiktokenFamily(std::string_view name);

}  // namespace weft::tokenizer
