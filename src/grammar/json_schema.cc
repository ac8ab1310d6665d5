#include "grammar/json_schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/json_digits.h"
#include "grammar/json_decimal.h"
#include "grammar/json_multiple.h"
#include "grammar/json_text.h"
#include "grammar/repetitions.h"
#include "grammar/schema_merge.h"
#include "grammar/schema_texts.h"

namespace weft::grammar {
namespace {

constexpr size_t kMostValues = 1 << 16;   // in a schema's text
constexpr size_t kMostMembers = 1 << 12;  // per object; each member is looked up
constexpr double kMostBound = 1e17;       // of a bound
constexpr double kMostDecimal = 1e18;     // larger numbers need an exponent
constexpr double kMostNumber = 1e118;  // above all possible numbers, since exponents have 2 digits
// Limits of expanded repetitions: characters of all strings, items of a list.
constexpr uint32_t kMostWritten = 4096, kMostWrittenItems = 2048;

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;

class Compiler {
  public:
    Compiler(const Schema& root, Leniency leniency, MergeBudget& budget, GrammarBuilder& builder)
        : root_(leniency.lenient() ? WithoutNulls(root) : root),
          leniency_(leniency),
          merger_(root_, leniency_, budget),
          builder_(builder) {}

    // The value described by the root schema.
    Result<Expr> Whole() {
        WEFT_ASSIGN(const Rule whole, Referred("#", "#"));
        WEFT_TRY(DefineOpen());
        return builder_.Call(whole);
    }
    // The root object as pairs in the format of `pairs`.
    Result<Expr> WholePairs(const CallPairs& pairs) {
        WEFT_ASSIGN(const Expr whole, Pairs(root_, "#", pairs, 0));
        WEFT_TRY(DefineOpen());
        return whole;
    }

    // Any value, or any object; the rules are made on first use.
    Expr AnyValue() {
        if (!any_) {
            any_ = builder_.AddRule("any value");
            const Expr object = AnyObject();
            const Expr item = builder_.Call(*any_);
            const Expr array =
                builder_.Sequence({builder_.Text("["), builder_.List({{item, true, true}}, Comma()),
                                   builder_.Text("]")});
            builder_.Define(*any_, builder_.Choice({object, array, AnyString(), AnyNumber(),
                                                    builder_.Text("true"), builder_.Text("false"),
                                                    builder_.Text("null")}));
        }
        return builder_.Call(*any_);
    }

    Expr AnyObject() {
        if (!any_object_) {
            any_object_ = builder_.AddRule("any object");
            const Expr member = builder_.Sequence({AnyString(), Colon(), AnyValue()});
            builder_.Define(*any_object_,
                            builder_.Sequence({builder_.Text("{"),
                                               builder_.List({{member, true, true}}, Comma()),
                                               builder_.Text("}")}));
        }
        return builder_.Call(*any_object_);
    }

  private:
    struct Open {
        Rule rule;
        const Schema* schema;
        std::string path;
    };

    Status DefineOpen() {
        while (!open_.empty()) {
            const Open next = open_.back();
            open_.pop_back();
            WEFT_ASSIGN(const Expr body, Value(*next.schema, next.path, 0));
            builder_.Define(next.rule, body);
        }
        return {};
    }

    Expr Space() { return builder_.Repeat(builder_.Text(" "), 0, 1); }
    Expr Comma() { return builder_.Sequence({builder_.Text(","), Space()}); }
    Expr Colon() { return builder_.Sequence({builder_.Text(":"), Space()}); }

    Expr AnyString() {
        if (!string_) {
            string_ = builder_.AddRule("string");
            builder_.Define(*string_, JsonString(builder_));
        }
        return builder_.Call(*string_);
    }
    Expr AnyNumber() {
        if (!number_) {
            number_ = builder_.AddRule("number");
            builder_.Define(*number_, JsonNumber(builder_));
        }
        return builder_.Call(*number_);
    }

    // The rule of a place in the root schema.
    Result<Rule> Referred(const Schema& ref, std::string_view path) {
        WEFT_ASSIGN(const Schema* const target, merger_.Resolve(ref, path));
        const auto [known, added] = rules_.try_emplace(target, 0);
        if (added) {
            const auto name = ref.get<std::string>();
            known->second = builder_.AddRule(ShownPath(name));
            open_.push_back({known->second, target, name});
        }
        return known->second;
    }

    // Resolves "$ref" and "allOf"; nullopt if the schema has neither.
    Result<std::optional<Schema>> Flattened(const Schema& schema, const std::string& path,
                                            int depth) {
        if (!schema.contains("$ref") && !schema.contains("allOf")) return std::optional<Schema>();
        WEFT_ASSIGN(auto flat, merger_.Flat(schema, path, depth));
        if (!flat) return SchemaError(path, "no value satisfies all of its parts");
        return flat;
    }

    Result<Expr> Value(const Schema& schema, const std::string& path, int depth) {
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nest deeper than {}", SchemaMerger::kMostDepth);
        }
        if (builder_.Full()) return SchemaError(path, "the schema is too large");
        if (schema.is_boolean()) {
            if (schema.get<bool>()) return AnyValue();
            return SchemaError(path, "false: no value is valid");
        }
        if (!schema.is_object()) return SchemaError(path, "expected an object, true or false");
        WEFT_ASSIGN(const auto known, merger_.Known(schema, path, depth));
        if (known) return Value(*known, path, depth);
        if (schema.contains("$ref") && !HasOtherKeywords(schema, {"$ref"})) {
            WEFT_ASSIGN(const Rule rule, Referred(schema["$ref"], path));
            return builder_.Call(rule);
        }
        WEFT_ASSIGN(const auto flat, Flattened(schema, path, depth));
        if (flat) return Value(*flat, path, depth + 1);
        for (const std::string key : {"anyOf", "oneOf"}) {
            if (schema.contains(key)) return Alternatives(schema, key, path, depth);
        }
        if (schema.contains("const") || schema.contains("enum")) return Listed(schema, path);
        return Typed(schema, path, depth);
    }

    Result<Expr> Alternatives(const Schema& schema, const std::string& key, const std::string& path,
                              int depth) {
        const Schema& alternatives = schema[key];
        if (!alternatives.is_array() || alternatives.empty()) {
            return SchemaError(path, "'{}' is not a list of schemas", key);
        }
        if (key == "oneOf") WEFT_TRY(CheckOneOf(alternatives, path, depth));
        Schema rest = schema;
        rest.erase(key);
        const bool restricted = HasOtherKeywords(rest, {});
        std::vector<Expr> choices;
        for (size_t i = 0; i < alternatives.size(); ++i) {
            const std::string place = SchemaPath(SchemaPath(path, key), std::to_string(i));
            std::optional<Schema> both;
            if (IsNever(alternatives[i])) continue;
            if (restricted || alternatives[i].contains("allOf")) {
                WEFT_ASSIGN(both, merger_.Both(rest, alternatives[i], place, depth));
                if (!both) continue;
            }
            WEFT_ASSIGN(const Expr choice, Value(both ? *both : alternatives[i], place, depth + 1));
            choices.push_back(choice);
        }
        if (choices.empty()) return SchemaError(path, "no value satisfies its '{}'", key);
        return builder_.Choice(std::move(choices));
    }

    Status CheckOneOf(const Schema& alternatives, const std::string& path, int depth) {
        for (size_t i = 0; i < alternatives.size(); ++i) {
            for (size_t j = 0; j < alternatives.size(); ++j) {
                if (i == j) continue;
                WEFT_ASSIGN(const bool apart,
                            merger_.Apart(alternatives[i], alternatives[j], path, depth));
                if (apart) continue;
                const Error refusal =
                    SchemaError(path,
                                "'oneOf': a value may be valid for both alternatives {} and {}; "
                                "use 'anyOf', or a required property with a different 'const'",
                                i, j);
                return leniency_.LeaveOut(path, "oneOf", refusal);  // it is then treated as 'anyOf'
            }
        }
        return {};
    }

    Result<Expr> Listed(const Schema& schema, const std::string& path) {
        WEFT_TRY(LeaveOutNextToEnum(schema, path));
        if (schema.contains("enum") && !schema["enum"].is_array()) {
            return SchemaError(path, "'enum' is not an array");
        }
        WEFT_ASSIGN(const auto types, SchemaTypes(schema, path));
        const bool single = schema.contains("const");
        std::vector<Expr> choices;
        for (const Schema& value : single ? Schema::array({schema["const"]}) : schema["enum"]) {
            const bool fits =
                types.empty() ||
                std::any_of(types.begin(), types.end(), [&](auto& t) { return HasType(value, t); });
            const bool listed = !single || !schema.contains("enum") ||
                                std::find(schema["enum"].begin(), schema["enum"].end(), value) !=
                                    schema["enum"].end();
            if (!fits || !listed) continue;
            WEFT_ASSIGN(const std::string text, Written(value, path));
            choices.push_back(builder_.Text(text));
        }
        if (choices.empty()) return SchemaError(path, "no value satisfies its 'enum' or 'const'");
        return builder_.Choice(std::move(choices));
    }

    Status LeaveOutNextToEnum(const Schema& schema, const std::string& path) const {
        for (const auto& [key, value] : schema.items()) {
            if (!HasOtherKeywords(Schema{{key, value}}, {"enum", "const", "type"})) continue;
            WEFT_TRY(leniency_.LeaveOut(
                path, key,
                SchemaError(path,
                            "keywords other than 'type' beside 'enum' or 'const' are not "
                            "supported")));
        }
        return {};
    }

    // Writes a value as JSON without spaces.
    static Result<std::string> Written(const Schema& value, const std::string& path) {
        try {
            return DumpJson(value, Schema::error_handler_t::strict);
        } catch (const std::exception&) {
            return SchemaError(path, "a string is not valid UTF-8");
        }
    }

    Result<Expr> Typed(const Schema& schema, const std::string& path, int depth) {
        WEFT_ASSIGN(std::vector<std::string> types, SchemaTypes(schema, path));
        if (types.empty()) types = ImpliedTypes(schema);
        if (types.empty()) return AnyValue();
        std::vector<Expr> choices;
        for (const std::string& type : types) {
            WEFT_ASSIGN(const Expr choice, OfType(schema, type, path, depth));
            choices.push_back(choice);
        }
        return builder_.Choice(std::move(choices));
    }

    Result<Expr> OfType(const Schema& schema, const std::string& type, const std::string& path,
                        int depth) {
        if (type == "null") return builder_.Text("null");
        if (type == "boolean") {
            return builder_.Choice({builder_.Text("true"), builder_.Text("false")});
        }
        if (type == "string") return String(schema, path);
        if (type == "integer") return Integer(schema, path);
        if (type == "number") return Number(schema, path);
        if (type == "array") return Array(schema, path, depth);
        return Object(schema, path, depth);
    }

    Result<Expr> String(const Schema& schema, const std::string& path) {
        WEFT_ASSIGN(const SchemaTexts texts,
                    SchemaTexts::Read(schema, path, leniency_, builder_.text_budget()));
        if (texts.Free()) return AnyString();
        const auto inside = texts.Counted() ? json_texts_.Between(texts.least(), texts.most())
                                            : texts.Inside(true, builder_);
        if (!inside.ok()) return SchemaError(path, "'pattern': {}", inside.error().message);
        const Expr quote = builder_.Text("\"");
        return builder_.Sequence({quote, *inside, quote});
    }

    // A bound of decimal numbers (without an exponent).
    Result<std::optional<NumberBound>> BoundOf(const Schema& schema, const char* closed,
                                               const char* open, bool lower,
                                               const std::string& path) {
        std::optional<NumberBound> bound;
        for (const char* key : {closed, open}) {
            const auto at = schema.find(key);
            if (at == schema.end()) continue;
            const double value = NumberOf(*at).value_or(NAN);
            const bool outward = lower ? value < -kMostBound : value > kMostBound;
            if (!outward && !(std::fabs(value) <= kMostBound)) {
                return SchemaError(path, "'{}' is not a number of magnitude up to 10^17", key);
            }
            if (std::fabs(value) >= kMostDecimal) continue;
            const NumberBound found = outward ? NumberBound{lower ? -kMostBound : kMostBound, false}
                                              : NumberBound{value, key == open};
            const bool stricter = !bound || found.value == bound->value ||
                                  (lower ? found.value > bound->value : found.value < bound->value);
            if (stricter) bound = found;
        }
        return bound;
    }

    // An inclusive integer bound; 10^18 if it is beyond all numbers that the grammar can write.
    static Result<std::optional<int64_t>> WholeBound(const Schema& schema, const char* closed,
                                                     const char* open, bool lower,
                                                     const std::string& path) {
        constexpr int64_t kMost = 1'000'000'000'000'000'000;
        std::optional<int64_t> bound;
        for (const char* key : {closed, open}) {
            const auto at = schema.find(key);
            if (at == schema.end()) continue;
            if (!NumberOf(*at)) return SchemaError(path, "'{}' is not a number", key);
            int64_t whole = 0;
            bool itself = true;  // whether the bound is an integer
            if (at->is_number_unsigned()) {
                whole = static_cast<int64_t>(std::min<uint64_t>(at->get<uint64_t>(), kMost));
            } else if (at->is_number_integer()) {
                whole = std::clamp(at->get<int64_t>(), -kMost, kMost);
            } else {
                const double value = *NumberOf(*at);
                const double next = lower ? std::ceil(value) : std::floor(value);
                itself = next == value;
                whole = static_cast<int64_t>(std::clamp<double>(next, -kMost, kMost));
            }
            if (key == open && itself && std::abs(whole) < kMost) whole += lower ? 1 : -1;
            if (!bound || (lower ? whole > *bound : whole < *bound)) bound = whole;
        }
        return bound;
    }

    Result<Expr> Integer(const Schema& schema, const std::string& path) {
        WEFT_ASSIGN(const auto least,
                    WholeBound(schema, "minimum", "exclusiveMinimum", true, path));
        WEFT_ASSIGN(const auto most,
                    WholeBound(schema, "maximum", "exclusiveMaximum", false, path));
        const bool none = (least && *least > kMostWhole) || (most && *most < -kMostWhole);
        if (none || (least && most && *least > *most)) {
            return SchemaError(path, "no integer lies between its bounds{}",
                               none ? " that has at most 18 digits" : "");
        }
        return Multiples(schema, path, [&](GrammarBuilder& builder) -> Result<Expr> {
            return JsonInteger(least, most, builder);
        });
    }

    Result<Expr> Number(const Schema& schema, const std::string& path) {
        WEFT_ASSIGN(const auto low, BoundOf(schema, "minimum", "exclusiveMinimum", true, path));
        WEFT_ASSIGN(const auto high, BoundOf(schema, "maximum", "exclusiveMaximum", false, path));
        const bool bounded = std::ranges::any_of(
            std::initializer_list<const char*>{"minimum", "exclusiveMinimum", "maximum",
                                               "exclusiveMaximum"},
            [&](const char* key) {
                return std::fabs(NumberOf(schema.value(key, Schema())).value_or(NAN)) < kMostNumber;
            });
        if (!bounded && !schema.contains("multipleOf")) return AnyNumber();
        return Multiples(schema, path, [&](GrammarBuilder& builder) -> Result<Expr> {
            if (!bounded) return JsonNumber(builder);
            const auto number = JsonDecimal(low, high, builder);
            if (!number.ok()) return SchemaError(path, "{}", number.error().message);
            return *number;
        });
    }

    // The numbers that `make` adds to a builder, restricted to those that satisfy 'multipleOf'.
    template <typename Make>
    Result<Expr> Multiples(const Schema& schema, const std::string& path, const Make& make) {
        const Schema* const of = Find(schema, "multipleOf");
        if (of == nullptr) return make(builder_);
        if (!NumberOf(*of)) return SchemaError(path, "'multipleOf' must be a number above 0");
        GrammarBuilder builder;
        const Rule rule = builder.AddRule("number");
        WEFT_ASSIGN(const Expr number, make(builder));
        builder.Define(rule, number);
        TextBudget& budget = builder_.text_budget();
        const auto multiples = MultiplesOf(*NumberOf(*of), budget);
        auto both = multiples.ok() ? TextAutomaton::Make(builder, rule, budget) : multiples;
        if (both.ok()) both = both->And(*multiples, budget);
        if (both.ok() && both->Empty()) {
            return SchemaError(path, "no multiple of its 'multipleOf' lies between its bounds");
        }
        if (both.ok()) return both->Written(false, builder_);
        const Error refusal = SchemaError(path, "'multipleOf': {}", both.error().message);
        if (both.error().code != ErrorCode::kUnsupported) return refusal;
        WEFT_TRY(leniency_.LeaveOut(path, "multipleOf", refusal));
        return make(builder_);
    }

    Result<Expr> Array(const Schema& schema, const std::string& path, int depth) {
        WEFT_ASSIGN(const uint32_t least, SchemaCount(schema, "minItems", 0, path));
        WEFT_ASSIGN(const uint32_t most,
                    SchemaCount(schema, "maxItems", GrammarBuilder::kNoLimit, path));
        if (least > most) return SchemaError(path, "'minItems' is above 'maxItems'");
        std::vector<Expr> parts = {builder_.Text("[")};
        uint32_t there = 0;
        if (schema.contains("prefixItems")) {
            const Schema& prefix = schema["prefixItems"];
            if (!prefix.is_array() || prefix.size() > most) {
                return SchemaError(path,
                                   "'prefixItems' is not a list of at most 'maxItems' schemas");
            }
            for (; there < prefix.size(); ++there) {
                const std::string place =
                    SchemaPath(SchemaPath(path, "prefixItems"), std::to_string(there));
                WEFT_ASSIGN(const Expr item, Value(prefix[there], place, depth + 1));
                if (there > 0) parts.push_back(Comma());
                parts.push_back(item);
            }
        }
        WEFT_ASSIGN(const std::optional<Expr> item, Item(schema, there, least, path, depth));
        const uint32_t more = least > there ? least - there : 0;
        if (!item && more > 0) return SchemaError(path, "'minItems' exceeds the allowed items");
        if (item && most > there) {
            const uint32_t limit = most == GrammarBuilder::kNoLimit ? most : most - there;
            parts.push_back(Items(*item, there > 0, more, limit));
        }
        parts.push_back(builder_.Text("]"));
        return builder_.Sequence(std::move(parts));
    }

    // The schema of items after prefixItems; nullopt: none may follow.
    Result<std::optional<Expr>> Item(const Schema& schema, uint32_t there, uint32_t least,
                                     const std::string& path, int depth) {
        if (!schema.contains("items")) {
            if (there > 0 && least <= there) return std::optional<Expr>();
            return std::optional<Expr>(AnyValue());
        }
        const Schema& items = schema["items"];
        if (IsNever(items)) return std::optional<Expr>();
        WEFT_ASSIGN(const Expr item, Value(items, SchemaPath(path, "items"), depth + 1));
        // A rule, because it is used twice.
        const Rule rule = builder_.AddRule(ShownPath(SchemaPath(path, "items")));
        builder_.Define(rule, item);
        return std::optional<Expr>(builder_.Call(rule));
    }

    // Matches `least` to `most` items (most >= 1); `behind`: they follow other items.
    Expr Items(Expr item, bool behind, uint32_t least, uint32_t most) {
        Repetitions next(builder_.Sequence({Comma(), item}), kMostWrittenItems, builder_);
        if (behind) return next.Between(least, most);
        const uint32_t rest = most == GrammarBuilder::kNoLimit ? most : most - 1;
        const Expr some = builder_.Sequence({item, next.Between(least > 0 ? least - 1 : 0, rest)});
        return least > 0 ? some : builder_.Repeat(some, 0, 1);
    }

    Result<Expr> Object(const Schema& schema, const std::string& path, int depth) {
        static const Schema kNone = Schema::object(), kNoNames = Schema::array();
        const Schema& properties = schema.contains("properties") ? schema["properties"] : kNone;
        const Schema& required = schema.contains("required") ? schema["required"] : kNoNames;
        if (!properties.is_object()) return SchemaError(path, "'properties' is not an object");
        if (!required.is_array()) return SchemaError(path, "'required' is not an array");
        const bool open = schema.contains("additionalProperties")
                              ? !IsNever(schema["additionalProperties"])
                              : !schema.contains("properties");
        if (open && properties.empty() && required.empty() && !schema.contains("propertyNames") &&
            (!schema.contains("additionalProperties") || schema["additionalProperties"] == true)) {
            return AnyObject();
        }
        WEFT_ASSIGN(const std::vector<Member> members, Members(schema, properties, required, path));
        std::vector<GrammarBuilder::Part> parts;
        std::vector<std::string> names;
        for (const Member& member : members) {
            const std::string place = SchemaPath(SchemaPath(path, "properties"), member.name);
            names.push_back(member.name);
            // A property that no value satisfies is omitted.
            if (!member.required && IsNever(*member.schema)) continue;
            WEFT_ASSIGN(const Expr value, Value(*member.schema, place, depth + 1));
            WEFT_ASSIGN(const std::string key, Written(Schema(member.name), place));
            parts.push_back(
                {builder_.Sequence({builder_.Text(key), Colon(), value}), !member.required});
        }
        if (open) {
            const bool any = !schema.contains("additionalProperties");
            const std::string place = SchemaPath(path, "additionalProperties");
            WEFT_ASSIGN(const Expr value,
                        any ? Result<Expr>(AnyValue())
                            : Value(schema["additionalProperties"], place, depth + 1));
            WEFT_ASSIGN(const Expr key, NameOf(schema, names, path, depth));
            parts.push_back({builder_.Sequence({key, Colon(), value}), true, true});
        }
        if (!names.empty() && schema.contains("propertyNames")) {
            const Error refusal = SchemaError(path,
                                              "the keyword 'propertyNames' is not supported "
                                              "together with 'properties' or 'required'");
            WEFT_TRY(leniency_.LeaveOut(path, "propertyNames", refusal));
        }
        return builder_.Sequence(
            {builder_.Text("{"), builder_.List(std::move(parts), Comma()), builder_.Text("}")});
    }

    // The name of an additional property; it must not be in `taken`.
    Result<Expr> NameOf(const Schema& schema, const std::vector<std::string>& taken,
                        const std::string& path, int depth) {
        if (!taken.empty()) return JsonStringBut(taken, builder_);
        const Schema* const names = Find(schema, "propertyNames");
        if (names == nullptr) return AnyString();
        const std::string place = SchemaPath(path, "propertyNames");
        WEFT_ASSIGN(const auto texts, merger_.Both(*names, {{"type", "string"}}, place, depth));
        if (!texts) return SchemaError(place, "no name satisfies it");
        return Value(*texts, place, depth + 1);
    }

    struct Member {
        std::string name;
        const Schema* schema;
        bool required;
    };

    // The properties in order, followed by other required properties.
    static Result<std::vector<Member>> Members(const Schema& schema, const Schema& properties,
                                               const Schema& required, const std::string& path) {
        static const Schema kAny = true;
        std::vector<Member> members;
        std::map<std::string, size_t> places;
        for (const auto& [name, value] : properties.items()) {
            places.emplace(name, members.size());
            members.push_back({name, &value, false});
        }
        for (const Schema& name : required) {
            if (!name.is_string()) return SchemaError(path, "'required' must contain strings");
            const auto [place, added] = places.emplace(name.get<std::string>(), members.size());
            if (added) {
                const bool said = schema.contains("additionalProperties");
                const Schema* more = said ? &schema["additionalProperties"] : &kAny;
                if (IsNever(*more)) {
                    return SchemaError(path,
                                       "'{}' is required, but is not in 'properties', and "
                                       "'additionalProperties' is false",
                                       ShownPath(place->first));
                }
                members.push_back({place->first, more, true});
            }
            members[place->second].required = true;
        }
        return members;
    }

    // The members of an object as pairs. Only its `properties` can be written as pairs.
    Result<Expr> Pairs(const Schema& schema, const std::string& path, const CallPairs& form,
                       int depth) {
        static const Schema kNone = Schema::object(), kNoNames = Schema::array();
        if (!schema.is_object()) return SchemaError(path, "arguments must be an object");
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nest deeper than {}", SchemaMerger::kMostDepth);
        }
        WEFT_ASSIGN(const auto known, merger_.Known(schema, path, depth));
        if (known) return Pairs(*known, path, form, depth);
        WEFT_ASSIGN(const auto flat, Flattened(schema, path, depth));
        if (flat) return Pairs(*flat, path, form, depth + 1);
        const bool object = !schema.contains("type") || schema["type"] == "object";
        if (!object ||
            HasOtherKeywords(schema, {"type", "properties", "required", "additionalProperties"})) {
            return SchemaError(path, "arguments must be an object");
        }
        if (schema.contains("additionalProperties") && !IsNever(schema["additionalProperties"])) {
            return SchemaError(path, "members with arbitrary names cannot be written as pairs");
        }
        const Schema& properties = schema.contains("properties") ? schema["properties"] : kNone;
        const Schema& required = schema.contains("required") ? schema["required"] : kNoNames;
        if (!properties.is_object()) return SchemaError(path, "'properties' is not an object");
        if (!required.is_array()) return SchemaError(path, "'required' is not an array");
        WEFT_ASSIGN(const std::vector<Member> members, Members(schema, properties, required, path));
        std::vector<GrammarBuilder::Part> parts;
        for (const Member& member : members) {
            if (!member.required && IsNever(*member.schema)) continue;
            if (!IsPlainName(member.name)) {
                return SchemaError(path, "'{}' has characters other than letters, digits and '_'",
                                   ShownPath(member.name));
            }
            const std::string place = SchemaPath(SchemaPath(path, "properties"), member.name);
            WEFT_ASSIGN(const Expr value, PairValue(*member.schema, place, form, depth + 1));
            parts.push_back({builder_.Sequence(
                                 {builder_.Text(form.before_key + member.name + form.before_value),
                                  value, builder_.Text(form.behind_value)}),
                             !member.required});
        }
        return builder_.List(std::move(parts), builder_.Text(form.between));
    }

    // A string value is written without JSON quotes and escapes, other values as JSON.
    Result<Expr> PairValue(const Schema& schema, const std::string& path, const CallPairs& form,
                           int depth) {
        if (form.texts == CallPairs::Texts::kJson) return Value(schema, path, depth);
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nest deeper than {}", SchemaMerger::kMostDepth);
        }
        if (builder_.Full()) return SchemaError(path, "the schema is too large");
        if (schema == true) return PairText(form);
        if (!schema.is_object()) return Value(schema, path, depth);
        WEFT_ASSIGN(const auto known, merger_.Known(schema, path, depth));
        if (known) return PairValue(*known, path, form, depth);
        WEFT_ASSIGN(const auto flat, Flattened(schema, path, depth));
        if (flat) return PairValue(*flat, path, form, depth + 1);
        std::vector<Expr> choices;
        for (const std::string key : {"anyOf", "oneOf"}) {
            if (!schema.contains(key)) continue;
            WEFT_TRY(Value(schema, path, depth));  // reports errors of the schema itself
            Schema rest = schema;
            rest.erase(key);
            for (const Schema& alternative : schema[key]) {
                WEFT_ASSIGN(const auto both, merger_.Both(rest, alternative, path, depth));
                if (!both) continue;
                WEFT_ASSIGN(const Expr choice, PairValue(*both, path, form, depth + 1));
                choices.push_back(choice);
            }
            return OneOf(std::move(choices), path);
        }
        if (schema.contains("const") || schema.contains("enum")) {
            WEFT_TRY(Listed(schema, path));
            return PairListed(schema, path, form);
        }
        WEFT_ASSIGN(std::vector<std::string> types, SchemaTypes(schema, path));
        if (types.empty()) types = ImpliedTypes(schema);
        if (types.empty()) return PairText(form);
        for (const std::string& type : types) {
            const bool text = type == "string";
            WEFT_ASSIGN(const Expr choice,
                        text ? PairString(schema, path, form) : OfType(schema, type, path, depth));
            choices.push_back(choice);
        }
        return builder_.Choice(std::move(choices));
    }

    // Precondition: Listed accepts the schema.
    Result<Expr> PairListed(const Schema& schema, const std::string& path, const CallPairs& form) {
        WEFT_ASSIGN(const auto types, SchemaTypes(schema, path));
        std::vector<Expr> choices;
        for (const Schema& value :
             schema.contains("const") ? Schema::array({schema["const"]}) : schema["enum"]) {
            const bool fits = types.empty() || std::ranges::any_of(types, [&](const auto& type) {
                                  return HasType(value, type);
                              });
            if (!fits) continue;
            WEFT_ASSIGN(const std::string json, Written(value, path));
            if (!value.is_string()) {
                choices.push_back(builder_.Text(json));
                continue;
            }
            const auto& text = value.get_ref<const std::string&>();
            if (text.empty() || text.find(TextEnd(form)[0]) != text.npos ||
                text.find_first_of(" \t\r\n") == 0 ||
                std::isspace(static_cast<unsigned char>(text.back())) != 0) {
                return SchemaError(path, "a string in the list cannot be written without JSON");
            }
            choices.push_back(Quoted(builder_.Text(text), form));
        }
        return OneOf(std::move(choices), path);
    }
    Result<Expr> OneOf(std::vector<Expr> choices, const std::string& path) {
        if (choices.empty()) return SchemaError(path, "no value satisfies all of its parts");
        return builder_.Choice(std::move(choices));
    }

    Result<Expr> PairString(const Schema& schema, const std::string& path, const CallPairs& form) {
        // Text with a pattern may contain its own end marker; text of a known format cannot.
        if (schema.contains("pattern")) {
            return SchemaError(path, "a string with a pattern cannot be written without JSON");
        }
        WEFT_ASSIGN(const SchemaTexts texts,
                    SchemaTexts::Read(schema, path, leniency_, builder_.text_budget()));
        if (texts.Free()) return PairText(form);
        if (texts.Counted()) {
            const auto first = static_cast<uint32_t>(TextEnd(form)[0]);
            const Expr one = builder_.Points(Complement({{first, first}}));
            if (!bare_texts_) bare_texts_.emplace(one, kMostWritten, builder_);
            return Quoted(bare_texts_->Between(texts.least(), texts.most()), form);
        }
        WEFT_ASSIGN(const Expr inside, texts.Inside(false, builder_));
        return Quoted(inside, form);
    }

    // Text that a bare or quoted string must not contain.
    static std::string_view TextEnd(const CallPairs& form) {
        if (form.texts == CallPairs::Texts::kQuoted) return form.quote;
        const std::string_view end = form.behind_value;
        return end.substr(std::min(end.find_first_not_of(" \t\r\n"), end.size()));
    }
    Expr Quoted(Expr text, const CallPairs& form) {
        if (form.texts != CallPairs::Texts::kQuoted) return text;
        return builder_.Sequence({builder_.Text(form.quote), text, builder_.Text(form.quote)});
    }
    Expr PairText(const CallPairs& form) {
        return Quoted(TextWithout(TextEnd(form), builder_), form);
    }

    const Schema root_;
    const Leniency leniency_;
    SchemaMerger merger_;
    GrammarBuilder& builder_;
    Repetitions json_texts_{JsonCharacter(false, builder_), kMostWritten, builder_};
    std::optional<Repetitions> bare_texts_;  // for pairs, which all have the same end
    std::map<const Schema*, Rule> rules_;    // by place in the root schema
    std::vector<Open> open_;                 // rules without a body yet
    std::optional<Rule> any_, any_object_, string_, number_;
};

Result<Schema> ParseSchema(std::string_view text) {
    constexpr size_t kMostDepth = 2 * SchemaMerger::kMostDepth + 16;
    auto schema = ParseJsonWithDigits(text, {.bytes = kMostSchemaBytes,
                                             .depth = kMostDepth,
                                             .values = kMostValues,
                                             .keys = kMostMembers});
    if (schema.ok()) return schema;
    const bool limit = schema.error().code == ErrorCode::kUnsupported;
    return SchemaError("#", "{}: {}", limit ? "too much JSON" : "not valid JSON",
                       schema.error().message);
}

// Compiles a grammar. If it fails because it is too large, lenient schemas lose their long
// patterns.
template <typename Compile>
Result<GrammarPtr> WithSmallPatterns(const Compile& compile) {
    constexpr uint64_t kSmallStates = 4096;
    GrammarBuilder whole;
    auto grammar = compile(whole);
    const bool smaller_may_do = whole.text_budget().most_states > kSmallStates;
    if (grammar.ok() || grammar.error().code == ErrorCode::kCancelled || !smaller_may_do) {
        return grammar;
    }
    GrammarBuilder smaller;
    smaller.text_budget().limit_states = kSmallStates;
    auto again = compile(smaller);
    return again.ok() ? std::move(again) : std::move(grammar);
}

// TextWithout requires an ASCII end whose first byte occurs once.
bool EndsTexts(const CallPairs& pairs) {
    if (pairs.texts == CallPairs::Texts::kJson) return true;
    const std::string_view end =
        pairs.texts == CallPairs::Texts::kQuoted ? pairs.quote : pairs.behind_value;
    const size_t begin = end.find_first_not_of(" \t\r\n");
    const bool ascii =
        std::ranges::all_of(end, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    return ascii && begin != end.npos && end.find(end[begin], begin + 1) == end.npos;
}

}  // namespace

bool IsPlainName(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_';
    });
}

Result<GrammarPtr> GrammarFromJsonSchemaText(std::string_view text, const SchemaOptions& options) {
    WEFT_ASSIGN(const Schema schema, ParseSchema(text));
    return GrammarFromJsonSchema(schema, options);
}

Result<GrammarPtr> GrammarFromJsonSchema(const nlohmann::ordered_json& schema,
                                         const SchemaOptions& options) {
    return WithSmallPatterns([&](GrammarBuilder& builder) -> Result<GrammarPtr> {
        MergeBudget budget;
        const Rule root = builder.AddRule("JSON");
        WEFT_ASSIGN(const Expr whole,
                    Compiler(schema, {options.lenient, options.left_out}, budget, builder).Whole());
        builder.Define(root, whole);
        return builder.Build(root, options.limits);
    });
}

Result<GrammarPtr> JsonObjectGrammar() {
    static const Schema kAny = true;
    GrammarBuilder builder;
    MergeBudget budget;
    const Rule root = builder.AddRule("JSON object");
    builder.Define(root, Compiler(kAny, {false, nullptr}, budget, builder).AnyObject());
    return builder.Build(root);
}

Result<GrammarPtr> GrammarFromCalls(const std::vector<CallText>& calls,
                                    const std::optional<CallPairs>& pairs,
                                    std::vector<std::string>* left_out, const CallText* otherwise,
                                    const CompileLimits& limits) {
    if (pairs && !EndsTexts(*pairs)) {
        return MakeError(ErrorCode::kUnsupported,
                         "grammar: a string's end marker cannot be told from its text");
    }
    return WithSmallPatterns([&](GrammarBuilder& builder) -> Result<GrammarPtr> {
        MergeBudget budget;
        std::vector<Expr> choices;
        for (const CallText& call : calls) {
            Compiler compiler(call.arguments, {call.lenient, left_out}, budget, builder);
            auto arguments = pairs ? compiler.WholePairs(*pairs) : compiler.Whole();
            if (!arguments.ok()) return arguments.error();
            choices.push_back(builder.Sequence(
                {builder.Text(call.before), *arguments, builder.Text(call.after)}));
        }
        if (otherwise != nullptr) {
            Compiler compiler(otherwise->arguments, {otherwise->lenient, left_out}, budget,
                              builder);
            WEFT_ASSIGN(const Expr value, compiler.Whole());
            choices.push_back(value);
        }
        const Rule root = builder.AddRule("call");
        builder.Define(root, builder.Choice(std::move(choices)));
        return builder.Build(root, limits);
    });
}

}  // namespace weft::grammar
