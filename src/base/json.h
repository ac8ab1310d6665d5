// Parses JSON text (RFC 8259) within limits. All JSON from requests, models, files and peers is
// parsed here: nlohmann's own parse() has no limits, and its result may be nested too deeply to be
// copied.
//
// Time and memory are linear in the text's size, and nothing recurses. A parsed value has at most
// `depth` levels, so that it can be copied, compared, dumped and walked recursively.
// If an object has a key twice, the last value counts; in an ordered object, it is at the position
// of the first. With `unique`, a repeated key is an error, which names it.
// A byte order mark is skipped. Half a surrogate pair, NaN, and numbers outside the range of a
// double are errors.
//
// Errors: kCorrupt (not JSON) and kUnsupported (a limit is exceeded), both with "line 3, column 7:
// ...", and kOutOfMemory. Messages state the fault and its position without quoting the text, so
// that they may be logged. Thread: any. No exceptions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace weft {

struct JsonLimits {
    size_t bytes = size_t{64} << 20;
    size_t depth = 100;               // nesting of objects and lists
    size_t values = size_t{1} << 20;  // in the whole text: scalars, lists and objects
    size_t keys = 10'000;             // in one object; a lookup compares with all of them
    bool comments = false;            // skip /* */ and // comments
    bool unique = false;              // a repeated key in one object is kCorrupt
};

// used: receives the number of values in the text; may be null.
Result<nlohmann::json> ParseJsonText(std::string_view text, const JsonLimits& limits = {},
                                     size_t* used = nullptr);
// As ParseJsonText, but keeps the members of objects in the order of the text.
Result<nlohmann::ordered_json> ParseOrderedJsonText(std::string_view text,
                                                    const JsonLimits& limits = {},
                                                    size_t* used = nullptr);

// For callers that write their own error messages: these functions return a value of type
// `discarded` instead of an error.
nlohmann::json JsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});
nlohmann::ordered_json OrderedJsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});

}  // namespace weft
