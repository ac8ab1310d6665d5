// Guesses the pre-tokenizer of a byte-level BPE GGUF file without `tokenizer.ggml.pre`: older files
// and some converters omit the key.
#pragma once

#include <span>
#include <string_view>

namespace weft::model_files {

// Derives the name (tokenizer/families.h) from the file's architecture and from tokens that only
// one family has. Returns "" for a vocabulary that it does not recognize.
std::string_view GuessPreTokenizer(std::string_view architecture,
                                   std::span<const std::string_view> tokens);

}  // namespace weft::model_files
