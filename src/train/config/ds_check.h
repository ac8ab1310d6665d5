// Checks every key of a DeepSpeed configuration against the table of ds_config.h, before it is
// read. Afterwards all values have valid types and ranges, and readers need no further checks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

// Parses a JSON object, which may have comments (//, /* */ and #) and commas before a closing
// bracket, as Hjson, which DeepSpeed reads. Errors: kCorrupt, also for duplicate keys, as in
// DeepSpeed. Renames aliases of keys to the name in the table.
Result<nlohmann::json> ParseDsJson(std::string_view text, const std::string& where);

// Errors (ds_config.h): a wrong type, a value out of range, a refused key. Other findings go to
// `warnings`. On success, all numbers are finite, and kInt values are whole.
Status CheckDsKeys(const nlohmann::json& json, const std::string& where,
                   std::vector<std::string>& warnings);

// The value at "a.b.c"; null if a part of the path is absent. Keys contain no dots.
const nlohmann::json* FindDsKey(const nlohmann::json& json, std::string_view path);

}  // namespace weft::train
