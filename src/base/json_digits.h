// JSON in which integers beyond 64 bits keep their digits, for JSON that is written again (calls of
// tools, requests, schemas); base/json.h gives them as floating-point numbers.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace weft {

// Parses like ParseOrderedJsonText, but keeps integers beyond 64 bits as digits (IsDigits).
Result<nlohmann::ordered_json> ParseJsonWithDigits(std::string_view text,
                                                   const JsonLimits& limits = {},
                                                   size_t* used = nullptr);
bool IsDigits(const nlohmann::ordered_json& value);
std::string DigitsOf(const nlohmann::ordered_json& value);
// The value of a number, also of one for which IsDigits holds; nullopt: not a number.
std::optional<double> NumberOf(const nlohmann::ordered_json& value);
// JSON on one line, with all digits (nlohmann's dump() writes them as an object). Invalid UTF-8
// becomes U+FFFD; with `strict`, it throws as dump() does.
std::string DumpJson(const nlohmann::ordered_json& json,
                     nlohmann::ordered_json::error_handler_t on_invalid =
                         nlohmann::ordered_json::error_handler_t::replace);

}  // namespace weft
