// JSON text (RFC 8259) to a value, for text that a request, a model, a file or a peer brings: the
// one way in. nlohmann's own parse() has no bounds, and what it gives may be too deep to copy.
//
// Time and memory are linear in the text, whatever it holds; nothing recurses. A value that was
// read here is at most `depth` levels deep: so it can be copied, compared, dumped and walked.
// Of two members with one key the last counts, in the place of the first (ordered) or by its key;
// where keys are to be `unique`, the second is an error.
// A byte order mark is skipped. Half a surrogate pair, NaN and what no double holds are no JSON.
//
// Errors: kCorrupt (it is no JSON) and kUnsupported (a limit) with "line 3, column 7: ...", and
// kOutOfMemory. They say where and what is wrong and hold nothing of the text: they may be logged.
// Thread: any. No exceptions.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace weft {

struct JsonLimits {
    size_t bytes = size_t{64} << 20;
    size_t depth = 100;               // of objects and lists in one another
    size_t values = size_t{1} << 20;  // all of them, with lists, objects and what is in these
    size_t keys = 10'000;             // of one object: who looks one up goes through them
    bool comments = false;            // /* */ and // are taken as blanks
    bool unique = false;              // two members of an object with one key are kCorrupt
};

// used: where given, how many values there are.
Result<nlohmann::json> ParseJsonText(std::string_view text, const JsonLimits& limits = {},
                                     size_t* used = nullptr);
// Members in their order.
Result<nlohmann::ordered_json> ParseOrderedJsonText(std::string_view text,
                                                    const JsonLimits& limits = {},
                                                    size_t* used = nullptr);

// For callers with words of their own: a value of the type `discarded` in place of an error.
nlohmann::json JsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});
nlohmann::ordered_json OrderedJsonOrDiscarded(std::string_view text, const JsonLimits& limits = {});

}  // namespace weft
