#include "serve/api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_digits.h"

namespace weft::serve {
namespace {

const Json kNull;
const Json kEmptyList = Json::array();

// Names of one member at several servers.
constexpr const char* kNames[][10] = {
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict",
     "num_predict", "max_tokens_to_sample", "max_gen_len", "maxTokens", "maxOutputTokens"},
    {"min_tokens", "min_new_tokens", "min_length"},
    {"ignore_eos", "ban_eos_token"},
    {"seed", "sampling_seed", "random_seed", "sampler_seed"},
    {"stop", "stop_sequences", "stop_sequence", "stop_strings", "stopping_strings", "stop_words",
     "stopSequences"},
    {"typical_p", "typ_p", "typical"},
    {"top_n_sigma", "nsigma"},
    {"top_p", "topP"},
    {"top_k", "topK"},
    {"presence_penalty", "presencePenalty"},
    {"frequency_penalty", "frequencyPenalty"},
    {"repetition_penalty", "repeat_penalty", "rep_pen"},
    {"repeat_last_n", "rep_pen_range"},
    {"n", "n_cmpl", "num_return_sequences", "candidate_count"},
    {"include_stop_str_in_output", "no_stop_trim"},
    {"add_special_tokens", "add_bos_token"},
    {"enable_thinking", "enable_reasoning", "enableThinking"},
    {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens",
     "thinking_budget", "reasoning_budget", "thinkingBudget"},
};

const char* TypeOf(const Json& value) {
    switch (value.type()) {
        case Json::value_t::object: return "an object";
        case Json::value_t::array: return "a list";
        case Json::value_t::string: return "a string";
        case Json::value_t::boolean: return "a boolean";
        case Json::value_t::number_integer:
        case Json::value_t::number_unsigned: return "an integer";
        case Json::value_t::number_float: return "a number";
        case Json::value_t::null: return "null";
        case Json::value_t::binary: return "an integer beyond 64 bits";
        case Json::value_t::discarded: return "nothing";
    }
    return "nothing";
}

}  // namespace

ApiError ErrorOf(const Error& error) {
    switch (error.code) {
        case ErrorCode::kUsage: return {400, error.message, "", "invalid_value"};
        case ErrorCode::kUnsupported: return {400, error.message, "", "unsupported_value"};
        case ErrorCode::kCancelled: return {503, error.message, "", "server_shutting_down"};
        case ErrorCode::kPeerLost: return {503, error.message, "", "rank_lost"};
        case ErrorCode::kTimeout: return {504, error.message, "", "timeout"};
        case ErrorCode::kNotFound: return {404, error.message, "", "not_found"};
        case ErrorCode::kCorrupt:
        case ErrorCode::kIo:
        case ErrorCode::kOutOfMemory:
        case ErrorCode::kDenied: break;
    }
    return {500, error.message, "", "internal_error"};
}

ApiError TooLong(const FullContext& full, std::string param) {
    std::string message = fmt::format("'{}' has {}{} tokens; {} fit the context", param,
                                      full.at_least ? "at least " : "", full.tokens,
                                      full.context - (full.answers ? 1 : 0));
    return {400, std::move(message), std::move(param), kContextExceeded, false, full};
}

Fields::Fields(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

bool Fields::HasOtherNames(std::string_view name) {
    return std::ranges::any_of(kNames, [&](const auto& names) {
        return std::ranges::any_of(names,
                                   [&](const char* one) { return one != nullptr && name == one; });
    });
}

const Json* Fields::Own(const char* name) const {
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
}

const char* Fields::RequestName(const char* name) const {
    if (!json_.is_object() || Own(name) != nullptr) return name;
    for (const auto& names : kNames) {
        const auto is = [&](const char* one) {
            return one != nullptr && std::string_view(one) == name;
        };
        if (std::ranges::none_of(names, is)) continue;
        for (const char* other : names) {
            if (other != nullptr && Own(other) != nullptr) return other;
        }
    }
    return name;
}

const Json* Fields::Present(const char*& name) const {
    if (!json_.is_object()) return nullptr;
    name = RequestName(name);
    const Json* const value = Own(name);
    if (value != nullptr) read_.emplace(name);
    return value;
}

std::vector<std::pair<std::string, const Json*>> Fields::Unread() const {
    std::vector<std::pair<std::string, const Json*>> members;
    if (!json_.is_object()) return members;
    for (const auto& [name, value] : json_.get_ref<const Json::object_t&>()) {
        if (!value.is_null() && !read_.contains(name)) members.emplace_back(name, &value);
    }
    return members;
}

bool Fields::Has(const char* name) const {
    return Present(name) != nullptr;
}

const Json& Fields::Get(const char* name) const {
    const Json* value = Present(name);
    return value == nullptr ? kNull : *value;
}

void Fields::Fail(const char* name, std::string message, std::string code) {
    if (error_) return;
    error_ = ApiError{400, std::move(message), path_ + name, std::move(code)};
}

void Fields::WrongType(const char* name, const char* expected, const Json& value) {
    Fail(name,
         fmt::format("Invalid type for '{}{}': expected {}, but got {} instead.", path_, name,
                     expected, TypeOf(value)),
         "invalid_type");
}

double Fields::Number(const char* name, double otherwise, double least, double most) {
    const Json* value = Present(name);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) return WrongType(name, "a number", *value), otherwise;
    const double number = value->get<double>();
    if (number >= least && number <= most) return number;
    Fail(name, fmt::format("Invalid value for '{}{}': {}. Expected a number from {} to {}.", path_,
                           name, number, least, most));
    return otherwise;
}

int64_t Fields::Integer(const char* name, int64_t otherwise, int64_t least, int64_t most) {
    const Json* value = Present(name);
    if (value == nullptr) return otherwise;
    const bool whole = value->is_number_integer() ||
                       (value->is_number_float() && std::abs(value->get<double>()) < 9e15 &&
                        std::trunc(value->get<double>()) == value->get<double>());
    if (!whole) return WrongType(name, "an integer", *value), otherwise;
    const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX;
    const int64_t number = huge                       ? INT64_MAX
                           : value->is_number_float() ? static_cast<int64_t>(value->get<double>())
                                                      : value->get<int64_t>();
    if (number >= least && number <= most) return number;
    Fail(name, fmt::format("Invalid value for '{}{}': {}. Expected an integer from {} to {}.",
                           path_, name, value->dump(), least, most));
    return otherwise;
}

bool Fields::Bool(const char* name, bool otherwise) {
    const Json* value = Present(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return WrongType(name, "a boolean", *value), otherwise;
    return value->get<bool>();
}

std::string Fields::Text(const char* name, std::string otherwise) {
    const Json* value = Present(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) return WrongType(name, "a string", *value), otherwise;
    return value->get<std::string>();
}

std::string Fields::Choice(const char* name, const char* otherwise,
                           const std::vector<std::string_view>& known) {
    std::string text = Text(name, otherwise);
    if (std::ranges::find(known, text) != known.end()) return text;
    std::string list;
    for (const std::string_view word : known) {
        list += fmt::format("{}'{}'", list.empty() ? "" : ", ", word);
    }
    Fail(name, fmt::format("Invalid value for '{}{}': '{}'. Supported values are: {}.", path_, name,
                           text.substr(0, 100), list));
    return otherwise;
}

std::vector<std::string> Fields::Texts(const char* name, size_t most) {
    const Json* value = Present(name);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    const auto is_text = [](const Json& item) { return item.is_string(); };
    if (!value->is_array() || !std::ranges::all_of(*value, is_text)) {
        return WrongType(name, "a string or a list of strings", *value), std::vector<std::string>{};
    }
    if (value->size() > most) {
        Fail(name, fmt::format("Invalid value for '{}{}': it has {} entries; the limit is {}.",
                               path_, name, value->size(), most));
        return {};
    }
    return value->get<std::vector<std::string>>();
}

const Json& Fields::Object(const char* name) {
    const Json* value = Present(name);
    if (value == nullptr) return kNull;
    if (!value->is_object()) return WrongType(name, "an object", *value), kNull;
    return *value;
}

const Json& Fields::List(const char* name) {
    const Json* value = Present(name);
    if (value == nullptr) return kEmptyList;
    if (!value->is_array()) return WrongType(name, "a list", *value), kEmptyList;
    return *value;
}

bool Fields::AtMost(size_t most, const char* name, const Json& list) {
    if (list.size() <= most) return true;
    Fail(name,
         fmt::format("'{}' has {} entries; the limit is {}.", PathOf(name), list.size(), most));
    return false;
}

void Fields::Each(const char* name, const Json& list,
                  const std::function<void(Fields&, const Json&)>& read) {
    for (size_t i = 0; i < list.size() && !error_; ++i) {
        const std::string entry = fmt::format("{}[{}]", name, i);
        if (!list[i].is_object()) {
            return Fail(entry.c_str(),
                        fmt::format("'{}' must be an object.", PathOf(entry.c_str())),
                        "invalid_type");
        }
        Fields fields(list[i], PathOf(entry.c_str()) + ".");
        read(fields, list[i]);
        Adopt(fields);
    }
}

std::optional<ApiError> ParseBody(std::string_view body, Json& out) {
    auto parsed = ParseJsonWithDigits(body, {.bytes = SIZE_MAX,  // HttpLimits::body_bytes counts
                                             .depth = kMostBodyDepth,
                                             .values = kMostBodyValues,
                                             .keys = kMostBodyKeys});
    const auto refuse = [](std::string message) {
        return ApiError{400, std::move(message), "", "invalid_json"};
    };
    if (!parsed.ok()) {
        const bool limit = parsed.error().code == ErrorCode::kUnsupported;
        return refuse(fmt::format("The body is {}: {}.",
                                  limit ? "beyond a limit on JSON" : "not valid JSON",
                                  parsed.error().message));
    }
    out = std::move(parsed).value();
    if (!out.is_object()) return refuse("The body must be a JSON object.");
    return {};
}

bool InnerJson::Read(const std::string& text, Fields& fields, const char* name, Json& out) {
    size_t used = 0;
    auto parsed = ParseJsonWithDigits(
        text,
        {.bytes = SIZE_MAX, .depth = kMostBodyDepth, .values = values_left_, .keys = kMostBodyKeys},
        &used);
    values_left_ -= std::min(values_left_, used);
    if (!parsed.ok() && parsed.error().code == ErrorCode::kUnsupported) {
        fields.Fail(name, fmt::format("'{}' exceeds a limit on JSON: {}.", fields.PathOf(name),
                                      parsed.error().message));
        return false;
    }
    out = parsed.ok() ? std::move(parsed).value() : Json(text);
    return true;
}

}  // namespace weft::serve
