// Opens the tokenizer of a Hugging Face folder, or a single tokenizer file.
//
// The first file that exists is used, in this order:
//   tokenizer.json                  Hugging Face tokenizers: BPE, Unigram (read_json.h)
//   tiktoken.model                  tiktoken (read_tiktoken.h)
//   tokenizer.model, spiece.model   SentencePiece (read_sentencepiece.h), or tiktoken if the file
//                                   begins like a tiktoken file
//   *.tiktoken                      tiktoken
// Optional files beside the tokenizer file: tokenizer_config.json (added tokens, names of bos and
// eos, add_bos_token), special_tokens_map.json (names), generation_config.json and config.json (ids
// that end a generation, model_type).
//
// Errors: kNotFound: the folder or all of these files are missing. kUnsupported: names an unknown
// part of a known format. kCorrupt: names the invalid file. Files above 512 MB are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

inline constexpr uint64_t kMostTokenizerBytes = uint64_t{512} << 20;

// The first tokenizer file in the order above.
Result<std::string> FindTokenizerFile(const std::string& folder);

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder);

// Opens a folder or a single file, with the files beside it.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// The folder's chat template (Jinja): chat_template.jinja, else `chat_template` in
// tokenizer_config.json (in a list, the template named "default"), else chat_template.json.
// kNotFound: none exists.
Result<std::string> ReadChatTemplate(const std::string& folder);

}  // namespace weft::tokenizer
