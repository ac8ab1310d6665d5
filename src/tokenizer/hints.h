// What the files beside a tokenizer say about it: tokenizer_config.json, special_tokens_map.json,
// generation_config.json, config.json. And fields of JSON objects, read with checks.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::tokenizer {

// A token that is added to a model's own.
struct AddedToken {
    int32_t id = -1;
    std::string text;
    bool special = false;
    bool takes_left = false;
    bool takes_right = false;
    bool single_word = false;
    bool normalized = false;  // looked for in normalized text
};

struct TokenizerHints {
    std::string bos, eos, unk, pad;  // their texts; empty: not said
    std::optional<bool> add_bos, add_eos;
    int32_t bos_id = -1, eos_id = -1;
    std::vector<int32_t> ends;      // ids that end a generation
    std::vector<AddedToken> added;  // added_tokens_decoder
    std::string model_type;         // of config.json: "kimi_k2"
    std::string tokenizer_class;
};

// The fields of a JSON object. The first one that is wrong makes the error; the getters go on with
// fallbacks. `where` names the object in it.
class Fields {
  public:
    Fields(const nlohmann::json& object, std::string where);
    const Status& status() const { return status_; }
    void Fail(std::string what);

    // nullptr where the field is not there or null.
    const nlohmann::json* Find(const char* key) const;
    std::string Text(const char* key);  // must be there
    std::string TextOr(const char* key, std::string fallback);
    bool BoolOr(const char* key, bool fallback);
    int64_t IntOr(const char* key, int64_t least, int64_t most, int64_t fallback);
    const nlohmann::json& Array(const char* key);  // must be there; else empty

  private:
    const nlohmann::json& object_;
    std::string where_;
    Status status_;
};

// An id: an integer from 0 to below 2^24, more than any vocabulary has.
inline constexpr int64_t kMostTokens = int64_t{1} << 24;

// Parses; kCorrupt where it is no JSON.
Result<nlohmann::json> ParseJson(std::string_view text);

// One object of `added_tokens`.
Result<AddedToken> ReadAddedToken(const nlohmann::json& object, int64_t id);

// Files beside a tokenizer.json that say more of it. Of those that say a thing, the first counts.
inline constexpr std::array kHintFiles = {"tokenizer_config.json", "special_tokens_map.json",
                                          "generation_config.json", "config.json"};
inline constexpr uint64_t kMostHintBytes = 64 << 20;  // of one of them

// The files of `folder` that are there. Errors name the file.
Result<TokenizerHints> ReadHints(const std::string& folder);
// Their contents, by the name of the file; for tests and fuzzing.
Status AddHints(const std::string& name, const nlohmann::json& contents, TokenizerHints& hints);

}  // namespace weft::tokenizer
