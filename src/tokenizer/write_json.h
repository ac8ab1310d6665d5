// Writes the tokenizer of a GGUF file as files of a Hugging Face folder: byte-level BPE ("gpt2")
// and SentencePiece BPE ("llama").
//
// GGUF names the pre-tokenizer; tokenizer.json gets the family's published expressions. Qwen's
// tokenizer.json also composes the text (NFC), which GGUF cannot express. For SentencePiece, GGUF
// has scores and tokenizer.json has merges: the pairs of tokens that join into a token, ordered by
// the score of that token. (If scores are equal, SentencePiece merges the leftmost pair; the scores
// of released vocabularies differ.)
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// Returns tokenizer.json. kUnsupported: another model or pre-tokenizer; the message lists the
// supported ones. kCorrupt: ids or tokens that are invalid in this format.
Result<std::string> TokenizerJson(const TokenizerData& data);

// Returns tokenizer_config.json for data accepted by TokenizerJson. chat: Jinja template; may be
// empty.
std::string TokenizerConfigJson(const TokenizerData& data, std::string_view chat);

}  // namespace weft::tokenizer
