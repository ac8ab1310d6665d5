#include "grammar/json_schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/utf8.h"
#include "grammar/json_decimal.h"
#include "grammar/json_text.h"
#include "grammar/regex_grammar.h"
#include "grammar/schema_formats.h"
#include "grammar/schema_merge.h"

namespace weft::grammar {
namespace {

constexpr uint32_t kMostCount = 100'000;
constexpr size_t kMostValues = 1 << 16;   // of a text
constexpr size_t kMostMembers = 1 << 12;  // of one object: each is looked up
constexpr double kMostBound = 1e17;       // of numbers

using Expr = GrammarBuilder::Expr;
using Rule = GrammarBuilder::Rule;

class Compiler {
  public:
    Compiler(const Schema& root, GrammarBuilder& builder)
        : root_(root), merger_(root), builder_(builder) {}

    // What satisfies the root.
    Result<Expr> Whole() {
        WEFT_ASSIGN(const Rule whole, Referred("#", "#"));
        WEFT_TRY(DefineOpen());
        return builder_.Call(whole);
    }
    // The same, an object, as a list of its members in the form that `pairs` has.
    Result<Expr> WholePairs(const CallPairs& pairs) {
        WEFT_ASSIGN(const Expr whole, Pairs(root_, "#", pairs, 0));
        WEFT_TRY(DefineOpen());
        return whole;
    }

    // Any value, or any object: rules that are made when they are first used.
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
            builder_.Define(*string_, JsonString(0, GrammarBuilder::kNoLimit, builder_));
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

    // Without "$ref" and "allOf"; nothing where it has neither.
    Result<std::optional<Schema>> Flattened(const Schema& schema, const std::string& path,
                                            int depth) {
        if (!schema.contains("$ref") && !schema.contains("allOf")) return std::optional<Schema>();
        WEFT_ASSIGN(auto flat, merger_.Flat(schema, path, depth));
        if (!flat) return SchemaError(path, "no value can satisfy its parts together");
        return flat;
    }

    Result<Expr> Value(const Schema& schema, const std::string& path, int depth) {
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nested deeper than {}", SchemaMerger::kMostDepth);
        }
        if (builder_.Full()) return SchemaError(path, "the schema is too large");
        if (schema.is_boolean()) {
            if (schema.get<bool>()) return AnyValue();
            return SchemaError(path, "false: no value can satisfy it");
        }
        if (!schema.is_object()) return SchemaError(path, "a schema is an object, true or false");
        WEFT_TRY(CheckKeywords(schema, path));
        if (schema.contains("$ref") && !RestrictsBeside(schema, {"$ref"})) {
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
        const bool restricted = RestrictsBeside(rest, {});
        std::vector<Expr> choices;
        for (size_t i = 0; i < alternatives.size(); ++i) {
            const std::string place = SchemaPath(SchemaPath(path, key), std::to_string(i));
            if (!restricted) {
                WEFT_ASSIGN(const Expr choice, Value(alternatives[i], place, depth + 1));
                choices.push_back(choice);
                continue;
            }
            WEFT_ASSIGN(const auto both, merger_.Both(rest, alternatives[i], place, depth));
            if (!both) continue;
            WEFT_ASSIGN(const Expr choice, Value(*both, place, depth + 1));
            choices.push_back(choice);
        }
        if (choices.empty()) return SchemaError(path, "no value can satisfy it with its '{}'", key);
        return builder_.Choice(std::move(choices));
    }

    Status CheckOneOf(const Schema& alternatives, const std::string& path, int depth) {
        for (size_t i = 0; i < alternatives.size(); ++i) {
            for (size_t j = 0; j < alternatives.size(); ++j) {
                if (i == j) continue;
                WEFT_ASSIGN(const bool apart,
                            merger_.Apart(alternatives[i], alternatives[j], path, depth));
                if (apart) continue;
                return SchemaError(path,
                                   "'oneOf': a value may satisfy alternatives {} and {} both; "
                                   "use 'anyOf', or a required property whose 'const' differs",
                                   i, j);
            }
        }
        return {};
    }

    Result<Expr> Listed(const Schema& schema, const std::string& path) {
        if (RestrictsBeside(schema, {"enum", "const", "type"})) {
            return SchemaError(path,
                               "keywords other than 'type' beside 'enum' or 'const' are not "
                               "supported");
        }
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
        if (choices.empty()) return SchemaError(path, "no value is in its 'enum' or 'const'");
        return builder_.Choice(std::move(choices));
    }

    // As JSON without blanks.
    static Result<std::string> Written(const Schema& value, const std::string& path) {
        try {
            return value.dump();
        } catch (const std::exception&) {
            return SchemaError(path, "a text that is not valid UTF-8");
        }
    }

    Result<Expr> Typed(const Schema& schema, const std::string& path, int depth) {
        WEFT_ASSIGN(std::vector<std::string> types, SchemaTypes(schema, path));
        if (types.empty()) types = SpokenOf(schema);
        if (types.empty()) return AnyValue();
        std::vector<Expr> choices;
        for (const std::string& type : types) {
            WEFT_ASSIGN(const Expr choice, OfType(schema, type, path, depth));
            choices.push_back(choice);
        }
        return builder_.Choice(std::move(choices));
    }

    // The types that the keywords of a schema without "type" are about.
    static std::vector<std::string> SpokenOf(const Schema& schema) {
        const std::pair<const char*, std::vector<const char*>> about[] = {
            {"object", {"properties", "required", "additionalProperties"}},
            {"array", {"items", "prefixItems", "minItems", "maxItems"}},
            {"string", {"minLength", "maxLength", "pattern", "format"}},
            {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}}};
        std::vector<std::string> types;
        for (const auto& [type, keys] : about) {
            const bool spoken = std::any_of(keys.begin(), keys.end(),
                                            [&](const char* key) { return schema.contains(key); });
            if (spoken) types.emplace_back(type);
        }
        return types;
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

    static Result<uint32_t> Count(const Schema& schema, const char* key, uint32_t fallback,
                                  const std::string& path) {
        const auto at = schema.find(key);
        if (at == schema.end()) return fallback;
        const double count = at->is_number() ? at->get<double>() : -1;
        if (!(count >= 0 && count <= kMostCount) || count != std::floor(count)) {
            return SchemaError(path, "'{}' is not a whole number from 0 to {}", key, kMostCount);
        }
        return static_cast<uint32_t>(count);
    }

    Result<Expr> String(const Schema& schema, const std::string& path) {
        const bool counted = schema.contains("minLength") || schema.contains("maxLength");
        WEFT_ASSIGN(const uint32_t least, Count(schema, "minLength", 0, path));
        WEFT_ASSIGN(const uint32_t most,
                    Count(schema, "maxLength", GrammarBuilder::kNoLimit, path));
        if (least > most) return SchemaError(path, "'minLength' is above 'maxLength'");
        std::string_view pattern;
        if (schema.contains("pattern")) {
            if (counted) {
                return SchemaError(path,
                                   "'pattern' beside 'minLength' or 'maxLength' is not "
                                   "supported; put the lengths into the pattern");
            }
            if (!schema["pattern"].is_string()) return SchemaError(path, "'pattern' is no text");
            pattern = schema["pattern"].get_ref<const std::string&>();
        } else if (schema.contains("format") && !counted && schema["format"].is_string()) {
            pattern = PatternOfFormat(schema["format"].get_ref<const std::string&>());
            if (pattern.empty()) return AnyString();
        } else {
            return counted ? JsonString(least, most, builder_) : AnyString();
        }
        auto inside = ExprFromRegex(pattern, {.search = true, .json_string = true}, builder_);
        if (!inside.ok()) return SchemaError(path, "'pattern': {}", inside.error().message);
        const Expr quote = builder_.Text("\"");
        return builder_.Sequence({quote, *inside, quote});
    }

    Result<std::optional<NumberBound>> BoundOf(const Schema& schema, const char* closed,
                                               const char* open, bool lower,
                                               const std::string& path) {
        std::optional<NumberBound> bound;
        for (const char* key : {closed, open}) {
            const auto at = schema.find(key);
            if (at == schema.end()) continue;
            if (!at->is_number() || !(std::fabs(at->get<double>()) <= kMostBound)) {
                return SchemaError(path, "'{}' is not a number of at most 10^17 in size", key);
            }
            const NumberBound found = {at->get<double>(), key == open};
            const bool stricter = !bound || found.value == bound->value ||
                                  (lower ? found.value > bound->value : found.value < bound->value);
            if (stricter) bound = found;
        }
        return bound;
    }

    Result<Expr> Integer(const Schema& schema, const std::string& path) {
        WEFT_ASSIGN(const auto low, BoundOf(schema, "minimum", "exclusiveMinimum", true, path));
        WEFT_ASSIGN(const auto high, BoundOf(schema, "maximum", "exclusiveMaximum", false, path));
        std::optional<int64_t> least, most;
        if (low) {
            const double whole = std::ceil(low->value);
            least = static_cast<int64_t>(whole) + (low->open && whole == low->value ? 1 : 0);
        }
        if (high) {
            const double whole = std::floor(high->value);
            most = static_cast<int64_t>(whole) - (high->open && whole == high->value ? 1 : 0);
        }
        if (least && most && *least > *most) {
            return SchemaError(path, "no whole number lies between its bounds");
        }
        return JsonInteger(least, most, builder_);
    }

    Result<Expr> Number(const Schema& schema, const std::string& path) {
        WEFT_ASSIGN(const auto low, BoundOf(schema, "minimum", "exclusiveMinimum", true, path));
        WEFT_ASSIGN(const auto high, BoundOf(schema, "maximum", "exclusiveMaximum", false, path));
        if (!low && !high) return AnyNumber();
        const auto number = JsonDecimal(low, high, builder_);
        if (!number.ok()) return SchemaError(path, "{}", number.error().message);
        return *number;
    }

    Result<Expr> Array(const Schema& schema, const std::string& path, int depth) {
        WEFT_ASSIGN(const uint32_t least, Count(schema, "minItems", 0, path));
        WEFT_ASSIGN(const uint32_t most, Count(schema, "maxItems", GrammarBuilder::kNoLimit, path));
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
        if (!item && more > 0) return SchemaError(path, "no items can follow, but 'minItems' do");
        if (item && most > there) {
            const uint32_t limit = most == GrammarBuilder::kNoLimit ? most : most - there;
            parts.push_back(Items(*item, there > 0, more, limit));
        }
        parts.push_back(builder_.Text("]"));
        return builder_.Sequence(std::move(parts));
    }

    // What items behind those of prefixItems are; none: there are none.
    Result<std::optional<Expr>> Item(const Schema& schema, uint32_t there, uint32_t least,
                                     const std::string& path, int depth) {
        if (!schema.contains("items")) {
            if (there > 0 && least <= there) return std::optional<Expr>();
            return std::optional<Expr>(AnyValue());
        }
        const Schema& items = schema["items"];
        if (items.is_array()) {
            return SchemaError(path, "'items' as a list is not supported; use 'prefixItems'");
        }
        if (items == false) return std::optional<Expr>();
        WEFT_ASSIGN(const Expr item, Value(items, SchemaPath(path, "items"), depth + 1));
        // A rule: it is used twice.
        const Rule rule = builder_.AddRule(ShownPath(SchemaPath(path, "items")));
        builder_.Define(rule, item);
        return std::optional<Expr>(builder_.Call(rule));
    }

    // From `least` to `most` items (most >= 1), behind others or not.
    Expr Items(Expr item, bool behind, uint32_t least, uint32_t most) {
        const Expr next = builder_.Sequence({Comma(), item});
        if (behind) return builder_.Repeat(next, least, most);
        const uint32_t rest = most == GrammarBuilder::kNoLimit ? most : most - 1;
        const Expr some =
            builder_.Sequence({item, builder_.Repeat(next, least > 0 ? least - 1 : 0, rest)});
        return least > 0 ? some : builder_.Repeat(some, 0, 1);
    }

    Result<Expr> Object(const Schema& schema, const std::string& path, int depth) {
        static const Schema kNone = Schema::object(), kNobody = Schema::array();
        const Schema& properties = schema.contains("properties") ? schema["properties"] : kNone;
        const Schema& required = schema.contains("required") ? schema["required"] : kNobody;
        if (!properties.is_object()) return SchemaError(path, "'properties' is not an object");
        if (!required.is_array()) return SchemaError(path, "'required' is not an array");
        const bool open = schema.contains("additionalProperties")
                              ? schema["additionalProperties"] != false
                              : !schema.contains("properties");
        if (open && properties.empty() && required.empty() &&
            (!schema.contains("additionalProperties") || schema["additionalProperties"] == true)) {
            return AnyObject();
        }
        WEFT_ASSIGN(const std::vector<Member> members, Members(schema, properties, required, path));
        std::vector<GrammarBuilder::Part> parts;
        std::vector<std::string> names;
        for (const Member& member : members) {
            const std::string place = SchemaPath(SchemaPath(path, "properties"), member.name);
            names.push_back(member.name);
            // A property that nothing satisfies is not there.
            if (!member.required && *member.schema == false) continue;
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
            const Expr key = names.empty() ? AnyString() : JsonStringBut(names, builder_);
            parts.push_back({builder_.Sequence({key, Colon(), value}), true, true});
        }
        return builder_.Sequence(
            {builder_.Text("{"), builder_.List(std::move(parts), Comma()), builder_.Text("}")});
    }

    struct Member {
        std::string name;
        const Schema* schema;
        bool required;
    };

    // The properties in order, and required ones that are not among them behind these.
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
            if (!name.is_string()) return SchemaError(path, "'required' has what is no text");
            const auto [place, added] = places.emplace(name.get<std::string>(), members.size());
            if (added) {
                const bool said = schema.contains("additionalProperties");
                const Schema* more = said ? &schema["additionalProperties"] : &kAny;
                if (*more == false) {
                    return SchemaError(path,
                                       "'{}' is required, but not among 'properties', and "
                                       "'additionalProperties' is false",
                                       ShownPath(place->first));
                }
                members.push_back({place->first, more, true});
            }
            members[place->second].required = true;
        }
        return members;
    }

    // The members of an object as pairs. Others than its properties can't be written so.
    Result<Expr> Pairs(const Schema& schema, const std::string& path, const CallPairs& form,
                       int depth) {
        static const Schema kNone = Schema::object(), kNobody = Schema::array();
        if (!schema.is_object()) return SchemaError(path, "arguments must be an object's");
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nested deeper than {}", SchemaMerger::kMostDepth);
        }
        WEFT_TRY(CheckKeywords(schema, path));
        WEFT_ASSIGN(const auto flat, Flattened(schema, path, depth));
        if (flat) return Pairs(*flat, path, form, depth + 1);
        const bool object = !schema.contains("type") || schema["type"] == "object";
        if (!object ||
            RestrictsBeside(schema, {"type", "properties", "required", "additionalProperties"})) {
            return SchemaError(path, "arguments must be an object's");
        }
        if (schema.contains("additionalProperties") && schema["additionalProperties"] != false) {
            return SchemaError(path, "members of any name can't be written as pairs");
        }
        const Schema& properties = schema.contains("properties") ? schema["properties"] : kNone;
        const Schema& required = schema.contains("required") ? schema["required"] : kNobody;
        if (!properties.is_object()) return SchemaError(path, "'properties' is not an object");
        if (!required.is_array()) return SchemaError(path, "'required' is not an array");
        WEFT_ASSIGN(const std::vector<Member> members, Members(schema, properties, required, path));
        std::vector<GrammarBuilder::Part> parts;
        for (const Member& member : members) {
            if (!member.required && *member.schema == false) continue;
            if (!IsPlainName(member.name)) {
                return SchemaError(path, "'{}' has other characters than letters, digits and '_'",
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

    // A value that is a text stands there without JSON's quotes and escapes, any other is JSON.
    Result<Expr> PairValue(const Schema& schema, const std::string& path, const CallPairs& form,
                           int depth) {
        if (form.texts == CallPairs::Texts::kJson) return Value(schema, path, depth);
        if (depth > SchemaMerger::kMostDepth) {
            return SchemaError(path, "schemas nested deeper than {}", SchemaMerger::kMostDepth);
        }
        if (builder_.Full()) return SchemaError(path, "the schema is too large");
        if (schema == true) return PairText(form);
        if (!schema.is_object()) return Value(schema, path, depth);
        WEFT_TRY(CheckKeywords(schema, path));
        WEFT_ASSIGN(const auto flat, Flattened(schema, path, depth));
        if (flat) return PairValue(*flat, path, form, depth + 1);
        std::vector<Expr> choices;
        for (const std::string key : {"anyOf", "oneOf"}) {
            if (!schema.contains(key)) continue;
            WEFT_TRY(Value(schema, path, depth));  // what is wrong with it is said there
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
        if (types.empty()) types = SpokenOf(schema);
        if (types.empty()) return PairText(form);
        for (const std::string& type : types) {
            const bool text = type == "string";
            WEFT_ASSIGN(const Expr choice,
                        text ? PairString(schema, path, form) : OfType(schema, type, path, depth));
            choices.push_back(choice);
        }
        return builder_.Choice(std::move(choices));
    }

    // Precondition: Listed takes it.
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
                text.find_first_of(" \t\r\n") == 0 || std::isspace(Last(text)) != 0) {
                return SchemaError(path, "a text of the list can't be written without JSON");
            }
            choices.push_back(Quoted(builder_.Text(text), form));
        }
        return OneOf(std::move(choices), path);
    }
    static unsigned char Last(std::string_view text) {
        return static_cast<unsigned char>(text.back());
    }
    Result<Expr> OneOf(std::vector<Expr> choices, const std::string& path) {
        if (choices.empty()) return SchemaError(path, "no value can satisfy its parts together");
        return builder_.Choice(std::move(choices));
    }

    Result<Expr> PairString(const Schema& schema, const std::string& path, const CallPairs& form) {
        WEFT_TRY(String(schema, path));
        // What a pattern lets in may hold what ends the text; the formats let in none of it.
        if (schema.contains("pattern")) {
            return SchemaError(path, "a text with a pattern can't be written without JSON");
        }
        std::string_view pattern;
        if (schema.contains("minLength") || schema.contains("maxLength")) {
            WEFT_ASSIGN(const uint32_t least, Count(schema, "minLength", 0, path));
            WEFT_ASSIGN(const uint32_t most,
                        Count(schema, "maxLength", GrammarBuilder::kNoLimit, path));
            const auto first = static_cast<uint32_t>(TextEnd(form)[0]);
            const Expr one = builder_.Points(Complement({{first, first}}));
            return Quoted(builder_.Repeat(one, least, most), form);
        } else if (schema.contains("format") && schema["format"].is_string()) {
            pattern = PatternOfFormat(schema["format"].get_ref<const std::string&>());
        }
        if (pattern.empty()) return PairText(form);
        WEFT_ASSIGN(const Expr inside, ExprFromRegex(pattern, {.search = true}, builder_));
        return Quoted(inside, form);
    }

    // What a text must not hold.
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

    const Schema& root_;
    SchemaMerger merger_;
    GrammarBuilder& builder_;
    std::map<const Schema*, Rule> rules_;  // by place in the root schema
    std::vector<Open> open_;               // rules that have no body yet
    std::optional<Rule> any_, any_object_, string_, number_;
};

Result<Schema> ParseSchema(std::string_view text) {
    constexpr size_t kMostDepth = 2 * SchemaMerger::kMostDepth + 16;
    auto schema = ParseOrderedJsonText(text, {.bytes = kMostSchemaBytes,
                                              .depth = kMostDepth,
                                              .values = kMostValues,
                                              .keys = kMostMembers});
    if (schema.ok()) return schema;
    const bool limit = schema.error().code == ErrorCode::kUnsupported;
    return SchemaError("#", "{}: {}", limit ? "too much JSON" : "not valid JSON",
                       schema.error().message);
}

// TextWithout knows ends of ASCII whose first byte comes once in them.
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

Result<GrammarPtr> GrammarFromJsonSchemaText(std::string_view text) {
    WEFT_ASSIGN(const Schema schema, ParseSchema(text));
    return GrammarFromJsonSchema(schema);
}

Result<GrammarPtr> GrammarFromJsonSchema(const nlohmann::ordered_json& schema) {
    GrammarBuilder builder;
    const Rule root = builder.AddRule("JSON");
    WEFT_ASSIGN(const Expr whole, Compiler(schema, builder).Whole());
    builder.Define(root, whole);
    return builder.Build(root);
}

Result<GrammarPtr> JsonObjectGrammar() {
    static const Schema kAny = true;
    GrammarBuilder builder;
    const Rule root = builder.AddRule("JSON object");
    builder.Define(root, Compiler(kAny, builder).AnyObject());
    return builder.Build(root);
}

Result<GrammarPtr> GrammarFromCalls(const std::vector<CallText>& calls,
                                    const std::optional<CallPairs>& pairs,
                                    const Schema* otherwise) {
    if (pairs && !EndsTexts(*pairs)) {
        return MakeError(ErrorCode::kUnsupported,
                         "grammar: the end of a text can't be told from what is in it");
    }
    GrammarBuilder builder;
    std::vector<Expr> choices;
    for (const CallText& call : calls) {
        Compiler compiler(call.arguments, builder);
        auto arguments = pairs ? compiler.WholePairs(*pairs) : compiler.Whole();
        if (!arguments.ok()) return arguments.error();
        choices.push_back(
            builder.Sequence({builder.Text(call.before), *arguments, builder.Text(call.after)}));
    }
    if (otherwise != nullptr) {
        WEFT_ASSIGN(const Expr value, Compiler(*otherwise, builder).Whole());
        choices.push_back(value);
    }
    const Rule root = builder.AddRule("call");
    builder.Define(root, builder.Choice(std::move(choices)));
    return builder.Build(root);
}

}  // namespace weft::grammar
