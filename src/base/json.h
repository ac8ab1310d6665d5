// Parses JSON text (RFC 8259) within limits. All JSON from requests, models, files and peers is
// parsed here: nlohmann's own parse() has no bounds, and its result may be too deep to copy.
//
// Time and memory are linear in the text's size, and nothing recurses. A parsed value has at most
// `depth` levels, so that it can be copied, compared, dumped and walked recursively.
// If an object has a key twice, the last value counts; an ordered object keeps it at the place of
// the first. With `unique`, a repeated key is an error.
// A byte order mark is skipped. Half a surrogate pair, NaN, and numbers beyond a double are errors.
//
// Errors: kCorrupt (not JSON) and kUnsupported (a limit is exceeded), both with "line 3, column 7:
// ...", and kOutOfMemory. They say what is wrong and where, without quoting the text, so that they
// may be logged. Thread: any. No exceptions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace weft {

struct JsonLimits {
    size_t bytes = size_t{64} << 20;
    size_t depth = 100;               // nesting of objects and lists
    size_t values = size_t{1} << 20;  // in total: scalars, lists and objects
    size_t keys = 10'000;             // of one object: a lookup scans them
    bool comments = false;            // skip /* */ and // comments
    bool unique = false;              // a repeated key in one object is kCorrupt
};

// used: receives the number of values; may be null.
Result<nlohmann::json> ParseJsonText(std::string_view text, const JsonLimits& limits = {},
                                     size_t* used = nullptr);
// Keeps the members of objects in their order.
Result<nlohmann::ordered_json> ParseOrderedJsonText(std::string_view text,
                                                    const JsonLimits& limits = {},
                                                    size_t* used = nullptr);

// For callers with their own error texts: returns a value of type `discarded` instead of an error.
nlohmann::json JsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});
nlohmann::ordered_json OrderedJsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});

}  // namespace weft
