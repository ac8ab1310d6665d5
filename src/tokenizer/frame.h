// What stands around a text, and which tokens are bos, eos and the ends of a generation: from the
// post-processor of a tokenizer.json and from the files beside it.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// Sets ids, prefix, suffix and ends of `data`, whose tokens and types are there already.
// `post_processor` may be null.
Status SetFrame(const nlohmann::json& post_processor, const TokenizerHints& hints,
                TokenizerData& data);

}  // namespace weft::tokenizer
