// The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`, as llama.cpp's converter writes
// the names.
//
// The expressions are those the model families publish in their tokenizer.json, written so that no
// text takes more than linear time. Contractions in any case ('s, 'S) are ASCII.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// How a family's vocabulary is used beyond its words.
struct FamilyTraits {
    bool whole_words = false;  // a word that is a token is taken as it is, whatever the merges say
    bool adds_bos = false;     // where the file does not say
    bool code_points = false;  // merges code points, with U+2581 for spaces, instead of bytes
};

struct Family {
    PreTokenizer words;
    FamilyTraits traits;
};

// kUnsupported for an unknown name; the message lists the known ones. Empty is "default".
Result<Family> MakeFamily(std::string_view name);
// The traits alone; those of "default" for an unknown name.
FamilyTraits TraitsOf(std::string_view name);
// The first name of those that mean the same: "llama3" for "llama-bpe"; empty for an unknown one.
std::string_view FamilyName(std::string_view name);
// All names, in alphabetical order, with ", " in between.
std::string FamilyNames();

// The one expression of a family of tiktoken files, PCRE2's dialect, contractions as in tiktoken:
// "kimi-k2", "llama-bpe", "qwen" (the first Qwen's), "o200k" (GPT-4o's).
Result<Family> MakeTiktokenFamily(std::string_view name);

}  // namespace weft::tokenizer
