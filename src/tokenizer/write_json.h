// The tokenizer of a GGUF file as the files of a Hugging Face folder: byte-level BPE ("gpt2") and
// SentencePiece BPE ("llama").
//
// GGUF names the kind of pre-tokenizer; tokenizer.json has its expressions: those that the families
// publish. Qwen's composes its text (NFC), which GGUF has no word for. Of SentencePiece, GGUF has
// scores and tokenizer.json has merges: the pairs of tokens that join into a token, ordered by its
// score. (Among pairs of equal scores SentencePiece joins the leftmost; released vocabularies have
// no two tokens of one score.)
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

// tokenizer.json. kUnsupported: another model, or a pre-tokenizer that is not among those; the
// message names them. kCorrupt: ids or tokens that no such file can have.
Result<std::string> TokenizerJson(const TokenizerData& data);

// tokenizer_config.json of a tokenizer for which TokenizerJson succeeded. chat: the template in
// Jinja, may be empty.
std::string TokenizerConfigJson(const TokenizerData& data, std::string_view chat);

}  // namespace weft::tokenizer
