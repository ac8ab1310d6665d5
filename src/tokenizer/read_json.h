// tokenizer.json, the format of Hugging Face tokenizers: a normalizer, a pre-tokenizer, a model
// (BPE or Unigram), a post-processor, a decoder and added tokens.
//
// What Weft does not know is refused by its name (kUnsupported); what is wrong is kCorrupt.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(std::string_view text,
                                                     const TokenizerHints& hints);

}  // namespace weft::tokenizer
