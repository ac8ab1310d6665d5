// Reads JSON of a model folder (config.json, quantization_config, ...).
//
// A getter takes a list of keys (old and new spellings of one) and uses the first that is present.
// `null` counts as absent. For an absent key, Need... functions return kNotFound, and other
// functions return the fallback. A value of another type or out of range is kCorrupt. Both errors
// name the file and the key.
// Hostile input: the text's size and nesting depth are checked before parsing.
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

// Text from a file in a form that an error message can show: at most 100 bytes, without control
// characters.
std::string Shown(std::string_view text);

// Parses `text`; `where` names it in errors. A repeated key in an object is an error, since its
// value is ambiguous.
Result<Json> ParseJson(std::string_view text, std::string_view where);

// A JSON object and its location for errors. Owns a copy of the object.
class Config {
  public:
    using Keys = std::initializer_list<std::string_view>;

    // `where`: "models/x/config.json". Errors: kCorrupt if the text is not a JSON object.
    static Result<Config> Parse(std::string_view text, std::string_view where);
    static Result<Config> Read(const std::string& path);  // at most kMostConfigBytes
    // An empty object if there is no such file.
    static Result<Config> ReadIfThere(const std::string& path);
    // An empty object.
    explicit Config(std::string where = "") : where_(std::move(where)), json_(Json::object()) {}

    const std::string& where() const { return where_; }
    const Json& json() const { return json_; }
    bool Has(std::string_view key) const { return Find({key}) != nullptr; }
    // Whether the key is present, possibly with the value null.
    bool Names(std::string_view key) const { return json_.contains(key); }

    Result<int64_t> NeedInt(Keys keys, int64_t least, int64_t most) const;
    Result<int64_t> IntOr(Keys keys, int64_t least, int64_t most, int64_t fallback) const;
    Result<double> NeedF64(Keys keys) const;
    Result<double> F64Or(Keys keys, double fallback) const;
    Result<bool> BoolOr(Keys keys, bool fallback) const;
    Result<std::string> StringOr(Keys keys, std::string fallback) const;
    // Lists; empty if absent.
    Result<std::vector<double>> Floats(Keys keys) const;
    Result<std::vector<std::string>> Strings(Keys keys) const;
    Result<std::vector<int64_t>> Ints(Keys keys) const;
    // A nested object; an empty one if absent.
    Result<Config> Sub(Keys keys) const;
    // A copy of this object to which the keys of `over` are added; they replace keys of the same
    // name.
    Config With(const Config& over) const { return With(over.json_); }
    Config With(const Json& over) const;
    Config Without(std::string_view key) const;
    // kCorrupt if the key's value is not `expected`; an absent key has that value.
    Status MustBe(std::string_view key, bool expected) const;
    Status MustBe(std::string_view key, const char* expected) const;

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
