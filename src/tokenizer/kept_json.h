// A tokenizer.json that no kind of GGUF equals, kept in the GGUF file as it is, with the files that
// stood beside it: what is read again is the same tokenizer, and what is exported are the same
// files.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

struct KeptJson {
    std::string json;  // tokenizer.json
    // tokenizer_config.json, special_tokens_map.json and generation_config.json as they are, by
    // name, and of config.json what tokenizers ask for; those that were there.
    std::map<std::string, std::string> beside;
};

// Of a folder. kNotFound: it has no tokenizer.json; kUnsupported, kCorrupt: it can't be run.
Result<KeptJson> ReadKeptJson(const std::string& folder);

// The tokenizer that a folder of these files would have. Errors name the file.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const KeptJson& kept);

}  // namespace weft::tokenizer
