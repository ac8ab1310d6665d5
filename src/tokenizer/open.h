// The tokenizer of a Hugging Face folder, or of one of its files.
//
// Looked for in this order, the first that is there counts:
//   tokenizer.json                  Hugging Face tokenizers: BPE, Unigram (read_json.h)
//   tiktoken.model                  tiktoken (read_tiktoken.h)
//   tokenizer.model, spiece.model   SentencePiece (read_sentencepiece.h) or, by what it begins
//                                   with, tiktoken
//   *.tiktoken                      tiktoken
// Beside it, where they are there: tokenizer_config.json (added tokens, names of bos and eos,
// add_bos_token), special_tokens_map.json (names), generation_config.json and config.json (ids that
// end a generation, model_type).
//
// Errors: kNotFound: no such folder or none of the files; kUnsupported: a part of a known format
// that Weft does not know, by name; kCorrupt: anything wrong inside a file, which is named.
// Files above 512 MB are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

inline constexpr uint64_t kMostTokenizerBytes = uint64_t{512} << 20;

// The one of them that counts.
Result<std::string> FindTokenizerFile(const std::string& folder);

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder);

// The same for a folder or for one of these files, with the files beside it.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// The chat template of a folder as its author wrote it (Jinja): chat_template.jinja, else
// tokenizer_config.json's `chat_template` (of a list the one named "default"), else
// chat_template.json. kNotFound where there is none.
Result<std::string> ReadChatTemplate(const std::string& folder);

}  // namespace weft::tokenizer
