// Grammars of JSON texts: texts that are valid for a JSON schema (draft 2020-12), and any JSON
// object.
//
// docs/structured.md lists the keywords. Every text that the grammar accepts is valid for the
// schema. In these cases, the grammar accepts fewer texts than the schema:
// - properties come in the schema's order;
// - absent `additionalProperties` count as false if there are `properties` (as in llama.cpp), else
//   as true;
// - a schema without `type` allows the types that its keywords apply to; without such keywords,
//   any value;
// - all of `prefixItems` are present, and more items only if `items` allows them;
// - white space: at most one space after ',' and ':';
// - integers have at most 18 digits, fractions 17, exponents 2.
//
// Unsupported keywords that restrict values are an error, never ignored: kUsage with the schema's
// path and the keyword. `oneOf` is an error if a value might be valid for two alternatives. In
// lenient mode such keywords are skipped and reported.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/grammar.h"

namespace weft::grammar {

inline constexpr size_t kMostSchemaBytes = 1 << 18;

struct SchemaOptions {
    // Skip unsupported keywords, and keywords that are null. Other invalid schemas are still
    // rejected.
    bool lenient = false;
    // Not null: receives the first 16 skipped keywords as "PATH: KEYWORD".
    std::vector<std::string>* left_out = nullptr;
    CompileLimits limits{};
};

// Errors: kUsage if the JSON or the schema is invalid, a keyword is unsupported, or no value is
// valid.
Result<GrammarPtr> GrammarFromJsonSchemaText(std::string_view text,
                                             const SchemaOptions& options = {});
Result<GrammarPtr> GrammarFromJsonSchema(const nlohmann::ordered_json& schema,
                                         const SchemaOptions& options = {});

// Any JSON object ({"type": "json_object"}).
Result<GrammarPtr> JsonObjectGrammar();

// Format of arguments that are not written as one JSON object: key, value, key, value, ... String
// values are written as JSON, bare (behind_value then ends them), or between two `quote`. All other
// values are JSON.
struct CallPairs {
    enum class Texts { kJson, kBare, kQuoted };
    std::string before_key{}, before_value{}, behind_value{}, between{};
    Texts texts = Texts::kJson;
    std::string quote{};  // kQuoted

    bool operator==(const CallPairs&) const = default;
};
// A call of one function: the text around its arguments, and their schema.
struct CallText {
    std::string before{}, after{};
    nlohmann::ordered_json arguments{};
    bool lenient = false;  // as SchemaOptions::lenient
};

// Whether the name has only letters, digits and "_", as keys of pairs must.
bool IsPlainName(std::string_view name);

// Accepts one of `calls`, with arguments as JSON, or as pairs if `pairs` is set. If `otherwise` is
// given, also accepts JSON for its schema without its surrounding text. Errors: as
// GrammarFromJsonSchema, and kUnsupported or kUsage if arguments cannot be written as pairs: they
// are not an object whose members have plain names, a string has a pattern, or an enumerated string
// contains text that may end it.
Result<GrammarPtr> GrammarFromCalls(const std::vector<CallText>& calls,
                                    const std::optional<CallPairs>& pairs,
                                    std::vector<std::string>* left_out = nullptr,
                                    const CallText* otherwise = nullptr,
                                    const CompileLimits& limits = {});

}  // namespace weft::grammar
