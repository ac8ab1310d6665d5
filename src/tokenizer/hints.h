// Reads tokenizer settings from the files beside a tokenizer: tokenizer_config.json,
// special_tokens_map.json, generation_config.json, config.json. Also: checked access to fields of
// JSON objects.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::tokenizer {

// A token added to the model's own vocabulary.
struct AddedToken {
    int32_t id = -1;
    std::string text;
    bool special = false;
    bool takes_left = false;
    bool takes_right = false;
    bool single_word = false;
    bool normalized = false;  // matched in normalized text
};

struct TokenizerHints {
    std::string bos, eos, unk, sep, pad, cls, mask;  // texts of the tokens; empty: not specified
    std::vector<std::string> more;                   // extra_special_tokens
    std::set<std::string> given;  // "bos_token": keys of tokens in the files, also with null
    std::optional<bool> add_bos, add_eos;
    bool add_prefix_space = false;
    int32_t bos_id = -1, eos_id = -1;
    std::vector<int32_t> ends;      // ids that end a generation
    std::vector<AddedToken> added;  // added_tokens_decoder
    std::string model_type;         // from config.json: "kimi_k2"
    int64_t vocab_size = 0;         // from config.json: rows of the embedding; 0: not specified
    std::string tokenizer_class;
};

// Checked access to a JSON object. The first invalid field sets the error; getters then return
// fallbacks. `where`: the object's name in errors.
class Fields {
  public:
    Fields(const nlohmann::json& object, std::string where);
    const Status& status() const { return status_; }
    void Fail(std::string what);

    // nullptr if the field is absent or null.
    const nlohmann::json* Find(const char* key) const;
    bool Has(const char* key) const;    // also with null
    std::string Text(const char* key);  // required
    std::string TextOr(const char* key, std::string fallback);
    bool BoolOr(const char* key, bool fallback);
    int64_t IntOr(const char* key, int64_t least, int64_t most, int64_t fallback);
    const nlohmann::json& Array(const char* key);  // required; an empty array on error

  private:
    const nlohmann::json& object_;
    std::string where_;
    Status status_;
};

// Token ids are integers from 0 to below 2^24, more than any vocabulary has.
inline constexpr int64_t kMostTokens = int64_t{1} << 24;

// Errors: kCorrupt if `text` is not valid JSON.
Result<nlohmann::json> ParseJson(std::string_view text);

Result<AddedToken> ReadAddedToken(const nlohmann::json& object, int64_t id);

// Files beside a tokenizer.json with more settings; the first file that has a setting wins.
inline constexpr std::array kHintFiles = {"tokenizer_config.json", "special_tokens_map.json",
                                          "generation_config.json", "config.json"};
inline constexpr uint64_t kMostHintBytes = 64 << 20;  // per file

// Reads the files that exist in `folder`. Errors name the file.
Result<TokenizerHints> ReadHints(const std::string& folder);
// Adds the contents of one file. name: the file's name, which determines how it is read. Tests and
// fuzzers call it.
Status AddHints(const std::string& name, const nlohmann::json& contents, TokenizerHints& hints);

}  // namespace weft::tokenizer
