// The first pass over a DeepSpeed configuration: every key against the table of ds_config.h. What
// passes has the right types and ranges, so that reading values needs no more care.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

// One object, comments allowed; kCorrupt where a key is there twice, as DeepSpeed has it. Keys that
// have several names have the one of the table afterwards.
Result<nlohmann::json> ParseDsJson(std::string_view text, const std::string& where);

// Types, ranges and refused keys are errors (ds_config.h); the rest is said in `warnings`. Numbers
// are finite afterwards, and those of kInt whole.
Status CheckDsKeys(const nlohmann::json& json, const std::string& where,
                   std::vector<std::string>& warnings);

// The value at "a.b.c"; null where a part of the path is absent. Keys hold no dots.
const nlohmann::json* FindDsKey(const nlohmann::json& json, std::string_view path);

}  // namespace weft::train
