// Opens the tokenizer of a Hugging Face folder, or a single tokenizer file.
//
// The first file that exists is used, in this order:
//   tokenizer.json                  Hugging Face tokenizers: BPE, Unigram (read_json.h)
//   tiktoken.model                  tiktoken (read_tiktoken.h)
//   tokenizer.model, spiece.model   SentencePiece (read_sentencepiece.h), or tiktoken if the file
//                                   begins like a tiktoken file
//   tekken.json                     Mistral's (read_tekken.h)
//   *.tiktoken                      tiktoken
//   vocab.json and merges.txt       BPE of GPT2Tokenizer (OPT; read_json.h)
// Optional files beside the tokenizer file: tokenizer_config.json (added tokens, names of bos and
// eos, add_bos_token), special_tokens_map.json (names), generation_config.json and config.json (ids
// that end a generation, model_type).
//
// Errors: kNotFound: the folder or all of these files are missing. kUnsupported: names an unknown
// part of a known format. kCorrupt: names the invalid file. Files above 512 MB are refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

inline constexpr uint64_t kMostTokenizerBytes = uint64_t{512} << 20;

// The first tokenizer file in the order above.
Result<std::string> FindTokenizerFile(const std::string& folder);

// The text of tokenizer.json; if FindTokenizerFile chooses vocab.json, the joined text
// (read_json.h). kNotFound: the folder's tokenizer has another format.
Result<std::string> TokenizerJsonOf(const std::string& folder);

Result<std::unique_ptr<Tokenizer>> OpenTokenizerFolder(const std::string& folder);

// Opens a folder or a single file, with the files beside it.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// The folder's chat templates (Jinja) by name, as transformers reads them: chat_template.jinja is
// "default", additional_chat_templates/NAME.jinja is NAME. Without chat_template.jinja, also the
// templates of `chat_template` in tokenizer_config.json, else in chat_template.json: a text, which
// is "default", or a list or object of names and texts. If no template is named "default", the
// first one also has that name. kNotFound: none exists.
using ChatTemplates = std::map<std::string, std::string>;
inline constexpr const char* kDefaultTemplate = "default";
Result<ChatTemplates> ReadChatTemplates(const std::string& folder);
// The files of additional_chat_templates, by their paths in the folder.
inline constexpr const char* kMoreTemplates = "additional_chat_templates";
std::vector<std::string> FindMoreTemplates(const std::string& folder);

}  // namespace weft::tokenizer
