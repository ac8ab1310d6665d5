#include "model_files/hf/json.h"

#include <cmath>

#include "base/bare_words.h"
#include "base/dangling_link.h"
#include "base/file_kind.h"
#include "base/json.h"

namespace weft::model_files::hf {
namespace {

constexpr size_t kMostDepth = 32;
constexpr size_t kMostElements = 1 << 20;
constexpr size_t kMostValues = 1 << 22;

std::string_view TypeOf(const Json& value) {
    if (value.is_number_float()) return "a fraction";
    if (value.is_number()) return "a number";
    if (value.is_string()) return "a string";
    if (value.is_boolean()) return "true or false";
    if (value.is_array()) return "an array";
    return value.is_object() ? "an object" : "null";
}

}  // namespace

std::string Shown(std::string_view text) {
    constexpr size_t kMost = 100;
    std::string out;
    for (const char c : text.substr(0, kMost)) {
        const auto byte = static_cast<unsigned char>(c);
        out += byte < 0x20 || byte == 0x7f ? '?' : c;
    }
    return text.size() > kMost ? out + "..." : out;
}

Result<Json> ParseJson(std::string_view text, std::string_view where) {
    auto parsed = ParseJsonText(
        text, {.depth = kMostDepth, .values = kMostValues, .keys = kMostElements, .unique = true});
    if (parsed.ok()) return parsed;
    const std::string kind = text.starts_with('{') ? "" : WrongKind(text.substr(0, kKindBytes));
    if (!kind.empty()) {
        return MakeError(ErrorCode::kCorrupt, "{}: not a JSON file: it is {}", where, kind);
    }
    const bool limit = parsed.error().code == ErrorCode::kUnsupported;
    return MakeError(ErrorCode::kCorrupt, "{}: {}: {}", where,
                     limit ? "too much JSON" : "not valid JSON", parsed.error().message);
}

Result<Config> Config::Parse(std::string_view text, std::string_view where) {
    WEFT_ASSIGN(Json json, ParseJson(WithoutBareWords(text), where));
    if (!json.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}; expected a JSON object", where,
                         TypeOf(json));
    }
    return Config(std::string(where), std::move(json));
}

Result<Config> Config::ReadIfThere(const std::string& path) {
    return IsListed(path) ? Read(path) : Config(path);
}

Result<Config> Config::Read(const std::string& path) {
    WEFT_ASSIGN(const std::string text, ReadModelText(path, kMostConfigBytes));
    return Parse(text, path);
}

const Json* Config::Find(Keys keys, std::string_view* found) const {
    for (const std::string_view key : keys) {
        const auto at = json_.find(key);
        if (at == json_.end() || at->is_null()) continue;
        if (found != nullptr) *found = key;
        return &*at;
    }
    return nullptr;
}

Error Config::Missing(Keys keys) const {
    std::string names;
    for (const std::string_view key : keys) {
        names += fmt::format("{}'{}'", names.empty() ? "" : " or ", key);
    }
    return MakeError(ErrorCode::kNotFound, "{}: {} is missing, and this model needs it", where_,
                     names);
}

Error Config::Corrupt(std::string_view key, std::string_view expected) const {
    const auto at = json_.find(key);
    const std::string value = at == json_.end() ? "absent" : Shown(at->dump(-1, ' ', true));
    return MakeError(ErrorCode::kCorrupt, "{}: '{}' is {}; expected {}", where_, key, value,
                     expected);
}

Result<int64_t> Config::NeedInt(Keys keys, int64_t least, int64_t most) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    if (value == nullptr) return Missing(keys);
    const std::string expected = fmt::format("a whole number from {} to {}", least, most);
    if (value->is_boolean()) {  // in Python, false is 0
        const int64_t number = value->get<bool>() ? 1 : 0;
        if (number < least || number > most) return Corrupt(key, expected);
        return number;
    }
    if (!value->is_number_integer()) return Corrupt(key, expected);
    if (value->is_number_unsigned()) {
        const auto number = value->get<uint64_t>();
        if (number > static_cast<uint64_t>(INT64_MAX)) return Corrupt(key, expected);
    }
    const auto number = value->get<int64_t>();
    if (number < least || number > most) return Corrupt(key, expected);
    return number;
}

Result<int64_t> Config::IntOr(Keys keys, int64_t least, int64_t most, int64_t fallback) const {
    if (Find(keys) == nullptr) return fallback;
    return NeedInt(keys, least, most);
}

Result<double> Config::NeedF64(Keys keys) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    if (value == nullptr) return Missing(keys);
    if (value->is_boolean()) return value->get<bool>() ? 1.0 : 0.0;
    if (!value->is_number()) return Corrupt(key, "a number");
    const auto number = value->get<double>();
    if (!std::isfinite(number)) return Corrupt(key, "a finite number");
    return number;
}

Result<double> Config::F64Or(Keys keys, double fallback) const {
    if (Find(keys) == nullptr) return fallback;
    return NeedF64(keys);
}

Result<bool> Config::BoolOr(Keys keys, bool fallback) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return Corrupt(key, "true or false");
    return value->get<bool>();
}

Result<std::string> Config::StringOr(Keys keys, std::string fallback) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) return Corrupt(key, "a string");
    return value->get<std::string>();
}

Result<std::vector<double>> Config::Floats(Keys keys) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    std::vector<double> numbers;
    if (value == nullptr) return numbers;
    if (!value->is_array() || value->size() > kMostElements) {
        return Corrupt(key, "an array of numbers");
    }
    for (const Json& element : *value) {
        if (!element.is_number() || !std::isfinite(element.get<double>())) {
            return Corrupt(key, "an array of finite numbers");
        }
        numbers.push_back(element.get<double>());
    }
    return numbers;
}

Result<std::vector<std::string>> Config::Strings(Keys keys) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    std::vector<std::string> strings;
    if (value == nullptr) return strings;
    if (!value->is_array() || value->size() > kMostElements) {
        return Corrupt(key, "an array of strings");
    }
    for (const Json& element : *value) {
        if (!element.is_string()) return Corrupt(key, "an array of strings");
        strings.push_back(element.get<std::string>());
    }
    return strings;
}

Result<std::vector<int64_t>> Config::Ints(Keys keys) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    std::vector<int64_t> numbers;
    if (value == nullptr) return numbers;
    if (!value->is_array() || value->size() > kMostElements) {
        return Corrupt(key, "an array of whole numbers");
    }
    for (const Json& element : *value) {
        if (!element.is_number_integer()) return Corrupt(key, "an array of whole numbers");
        numbers.push_back(element.get<int64_t>());
    }
    return numbers;
}

Result<Config> Config::Sub(Keys keys) const {
    std::string_view key;
    const Json* value = Find(keys, &key);
    if (value == nullptr) return Config(where_);
    if (!value->is_object()) return Corrupt(key, "an object");
    return Config(fmt::format("{}: {}", where_, key), *value);
}

Config Config::Without(std::string_view key) const {
    Config rest = *this;
    rest.json_.erase(std::string(key));
    return rest;
}

Config Config::With(const Json& over) const {
    Config both = *this;
    for (const auto& [key, value] : over.items()) both.json_[key] = value;
    return both;
}

Status Config::MustBe(std::string_view key, bool expected) const {
    WEFT_ASSIGN(const bool value, BoolOr({key}, expected));
    if (value == expected) return {};
    return Corrupt(key, expected ? "true" : "false");
}

Status Config::MustBe(std::string_view key, const char* expected) const {
    WEFT_ASSIGN(const std::string value, StringOr({key}, expected));
    if (value == expected) return {};
    return Corrupt(key, fmt::format("'{}'", expected));
}

}  // namespace weft::model_files::hf
