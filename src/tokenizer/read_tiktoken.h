// tiktoken files: a line a token, its bytes in base64 and its rank, which is its id. Neighbours
// join where their bytes are a token, the one of the lowest rank first.
//
// The file does not say how text is cut into words: the family is known by config.json's
// `model_type`, or else by the number of tokens. Special tokens come from tokenizer_config.json;
// where that is missing, the well-known ones of the family.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

Result<std::unique_ptr<Tokenizer>> ReadTiktoken(std::string_view text, const TokenizerHints& hints);
// Whether a file begins like one.
bool LooksLikeTiktoken(std::string_view text);

}  // namespace weft::tokenizer
