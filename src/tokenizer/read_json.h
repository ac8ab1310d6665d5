// Reads tokenizer.json, the format of Hugging Face tokenizers: normalizer, pre-tokenizer, model
// (BPE or Unigram), post-processor, decoder and added tokens.
//
// Errors: kUnsupported names an unknown part; kCorrupt: invalid content.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/hints.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(std::string_view text,
                                                     const TokenizerHints& hints);

// The special tokens that the hints name, in transformers' order, with ""s.
std::vector<std::string> NamedTokens(const TokenizerHints& hints);
// Adds the tokens that transformers' GPT2Tokenizer has if no file names others.
void AddClassTokens(TokenizerHints& hints);
// The tokenizer.json that transformers' GPT2Tokenizer makes of its vocab.json and merges.txt:
// byte-level BPE, with added_tokens_decoder of tokenizer_config.json and the named tokens, which
// get the next ids if the vocabulary lacks them. kUnsupported: `hints` name another class.
Result<std::string> JoinVocabulary(std::string_view vocab, std::string_view merges,
                                   const TokenizerHints& hints);

}  // namespace weft::tokenizer
