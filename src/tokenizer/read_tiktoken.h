// Reads tiktoken files: one line per token with its bytes in base64 and its rank, which is also its
// id. Adjacent tokens merge if their joined bytes are a token; the lowest rank merges first.
//
// The file does not contain the pre-tokenizer: the family is identified by config.json's
// `model_type` and the number of tokens. Special tokens come from tokenizer_config.json, or
// else from the family's known list.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

Result<std::unique_ptr<Tokenizer>> ReadTiktoken(std::string_view text, const TokenizerHints& hints);
bool LooksLikeTiktoken(std::string_view text);

}  // namespace weft::tokenizer
