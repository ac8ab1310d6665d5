// Reads Mistral's tekken.json (mistral_common's Tekkenizer): the tokens in base64 by rank, the
// pre-tokenizer's expression, and special tokens, whose ids precede the ids of the ranks. Adjacent
// tokens merge as in tiktoken files (read_tiktoken.h).
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

inline constexpr const char* kTekkenFile = "tekken.json";

Result<std::unique_ptr<Tokenizer>> ReadTekken(std::string_view text, const TokenizerHints& hints);

}  // namespace weft::tokenizer
