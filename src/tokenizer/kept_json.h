// A tokenizer.json for which GGUF has no equivalent kind of tokenizer. The GGUF file stores the
// tokenizer.json and the files beside it, so that loading gives the same tokenizer and exporting
// gives the same files.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace weft::tokenizer {

struct KeptJson {
    std::string json;  // tokenizer.json
    // By name: tokenizer_config.json, special_tokens_map.json and generation_config.json,
    // unchanged, as far as they exist; and the tokenizer's fields of config.json.
    std::map<std::string, std::string> beside;
};

// Reads a folder. kNotFound: there is no tokenizer.json. kUnsupported, kCorrupt: Weft cannot use
// it.
Result<KeptJson> ReadKeptJson(const std::string& folder);

// Makes the tokenizer of a folder with these files. Errors name the file.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(const KeptJson& kept);

}  // namespace weft::tokenizer
