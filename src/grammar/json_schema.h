// Grammars of JSON texts: those that satisfy a JSON schema (draft 2020-12), and any object.
//
// docs/structured.md has the table of keywords. What the grammar lets through satisfies the schema;
// where the schema leaves more open than is useful, the grammar is narrower:
// - properties come in the order of the schema;
// - `additionalProperties` that isn't stated counts as false where there are `properties`, as
//   llama.cpp has it, and as true elsewhere;
// - a schema without `type` gives the types that its keywords speak of; without any: any value;
// - all of `prefixItems` are there, and more items only where `items` says so;
// - blanks: at most one space after ',' and ':', none elsewhere;
// - whole numbers have at most 18 digits, fractions 17, exponents 2.
//
// A keyword that restricts values and can't be kept is refused, never ignored: kUsage with the path
// of the schema and the keyword. `oneOf` is refused where its alternatives can't be told apart, so
// that two of them might hold. A lenient compiler leaves such keywords out and says which.
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
    // Keywords that can't be kept are left out; what is no schema is refused all the same.
    bool lenient = false;
    // Not null: gets them as "PATH: KEYWORD", the first 16.
    std::vector<std::string>* left_out = nullptr;
    CompileLimits limits{};
};

// kUsage: not JSON, not a schema, not supported, or no value can satisfy it.
Result<GrammarPtr> GrammarFromJsonSchemaText(std::string_view text,
                                             const SchemaOptions& options = {});
Result<GrammarPtr> GrammarFromJsonSchema(const nlohmann::ordered_json& schema,
                                         const SchemaOptions& options = {});

// Any JSON object ({"type": "json_object"}).
Result<GrammarPtr> JsonObjectGrammar();

// How the members of an object are written that is no JSON: a key, its value, and so on. Values
// that are texts are JSON, bare up to `behind_value`, or between two quotes; others are JSON.
struct CallPairs {
    enum class Texts { kJson, kBare, kQuoted };
    std::string before_key{}, before_value{}, behind_value{}, between{};
    Texts texts = Texts::kJson;
    std::string quote{};  // kQuoted

    bool operator==(const CallPairs&) const = default;
};
// A call of one function: what stands around its arguments, and their schema.
struct CallText {
    std::string before{}, after{};
    nlohmann::ordered_json arguments{};
    bool lenient = false;  // see SchemaOptions
};

// Whether a name is of letters, digits and "_" alone, as keys of pairs are.
bool IsPlainName(std::string_view name);

// One of these calls, arguments as JSON or as pairs; or, where there is one, the JSON of
// `otherwise` with nothing around it. kUnsupported, kUsage: some of the arguments can't be written
// as pairs (they are no object of members with plain names; texts have patterns,
// or are listed and hold what may end them); and as above.
Result<GrammarPtr> GrammarFromCalls(const std::vector<CallText>& calls,
                                    const std::optional<CallPairs>& pairs,
                                    std::vector<std::string>* left_out = nullptr,
                                    const CallText* otherwise = nullptr,
                                    const CompileLimits& limits = {});

}  // namespace weft::grammar
