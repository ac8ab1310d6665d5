// Reads SentencePiece's `.model` files: a protobuf with pieces, scores and types, the model type
// (BPE or Unigram) and normalization rules.
// Source: sentencepiece_model.proto, messages ModelProto, TrainerSpec and NormalizerSpec.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

Result<std::unique_ptr<Tokenizer>> ReadSentencePiece(std::string_view bytes,
                                                     const TokenizerHints& hints);

}  // namespace weft::tokenizer
