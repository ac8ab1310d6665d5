// Special tokens around a text, and the ids of bos, eos and the end tokens, from the post-processor
// of a tokenizer.json and from the files beside it.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// Sets ids, prefix, suffix and ends of `data`; the tokens and types of `data` must already be set.
// `post_processor` may be null.
Status SetFrame(const nlohmann::json& post_processor, const TokenizerHints& hints,
                TokenizerData& data);

}  // namespace weft::tokenizer
