// JSON of a model folder (config.json, quantization_config, ...), read with care.
//
// Getters take a list of keys, of which the first that is there counts: old and new spellings. A
// `null` is as good as absent. An absent key is kNotFound in Need..., the fallback elsewhere; a
// value of another type or out of range is kCorrupt; both name the file and the key.
// Hostile input: the text's size and the depth of its nesting are bounded before it is parsed.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::model_files::hf {

using Json = nlohmann::json;

inline constexpr uint64_t kMostConfigBytes = 16 << 20;

// Text from a file as errors may show it: cut to 100 bytes, without control characters.
std::string Shown(std::string_view text);

// Parses `text`; `where` names it in errors. Two members of an object with one key are an error:
// which of them is meant is not known.
Result<Json> ParseJson(std::string_view text, std::string_view where);

// A JSON object and where it stands. Owns a copy of the object.
class Config {
  public:
    using Keys = std::initializer_list<std::string_view>;

    // `where`: "models/x/config.json". kCorrupt where the text is no JSON object.
    static Result<Config> Parse(std::string_view text, std::string_view where);
    static Result<Config> Read(const std::string& path);  // at most kMostConfigBytes
    // No keys at all.
    explicit Config(std::string where = "") : where_(std::move(where)), json_(Json::object()) {}

    const std::string& where() const { return where_; }
    const Json& json() const { return json_; }
    bool Has(std::string_view key) const { return Find({key}) != nullptr; }
    // The key is there, be it with the value null.
    bool Names(std::string_view key) const { return json_.contains(key); }

    Result<int64_t> NeedInt(Keys keys, int64_t least, int64_t most) const;
    Result<int64_t> IntOr(Keys keys, int64_t least, int64_t most, int64_t fallback) const;
    Result<double> NeedF64(Keys keys) const;
    Result<double> F64Or(Keys keys, double fallback) const;
    Result<bool> BoolOr(Keys keys, bool fallback) const;
    Result<std::string> StringOr(Keys keys, std::string fallback) const;
    // Empty where absent.
    Result<std::vector<double>> Floats(Keys keys) const;
    Result<std::vector<std::string>> Strings(Keys keys) const;
    Result<std::vector<int64_t>> Ints(Keys keys) const;
    // An object inside; an empty one where absent.
    Result<Config> Sub(Keys keys) const;
    // This one, where the keys of `over` replace those of the same name.
    Config With(const Config& over) const;

    // "models/x/config.json: 'key' ...": an error about a key.
    Error Corrupt(std::string_view key, std::string_view expected) const;

  private:
    Config(std::string where, Json json) : where_(std::move(where)), json_(std::move(json)) {}
    const Json* Find(Keys keys, std::string_view* found = nullptr) const;
    Error Missing(Keys keys) const;

    std::string where_;
    Json json_;
};

}  // namespace weft::model_files::hf
