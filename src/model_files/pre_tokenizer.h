// Which pre-tokenizer a GGUF file of byte-level BPE means that names none (`tokenizer.ggml.pre`):
// files older than the key, and some converters, leave it out.
#pragma once

#include <span>
#include <string_view>

namespace weft::model_files {

// The name (tokenizer/families.h) by the file's architecture and by tokens that only one family
// has. Empty: nothing is known of such a vocabulary.
std::string_view GuessPreTokenizer(std::string_view architecture,
                                   std::span<const std::string_view> tokens);

}  // namespace weft::model_files
