// Parses a file of flags: TOML's keys and values (toml.io) without tables.
//
//     ctx = 8192              # a comment
//     stop = "a \"#\"\n"      a string with TOML's escapes; '...': without escapes
//     alias = ["a",
//              "b"]           a list
//     kv-dtype = q8_0         beyond TOML: a text without quotation marks, up to the line's end
//     elastic                 beyond TOML: as elastic = true
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::cli {

struct FlagLine {
    std::string name;
    std::vector<std::string> values;
};

// Errors: kUsage, with the line's number.
Result<std::vector<FlagLine>> ParseFlagLines(std::string_view text);

}  // namespace weft::cli
