// SchemaMerger::Known: rewrites keywords of other drafts and of OpenAPI, and treats unsupported
// ones.
#include "grammar/schema_merge.h"

namespace weft::grammar {
namespace {

constexpr size_t kMostListedNames = 4096;

Error NotSupported(std::string_view path, std::string_view key, std::string_view but = {}) {
    return SchemaError(path, "the keyword '{}' is not supported{}", ShownPath(key), but);
}

// Rewrites draft 7's tuples: a list of schemas, and the schema of further items.
Status KnowItems(Schema& schema, const std::string& path) {
    const Schema* const items = Find(schema, "items");
    if (items == nullptr || !items->is_array()) {
        schema.erase("additionalItems");  // has a meaning beside a list only
        return {};
    }
    if (schema.contains("prefixItems")) {
        return SchemaError(path, "'items' as a list cannot be combined with 'prefixItems'");
    }
    Schema prefix = *items;
    schema.erase("items");
    schema["prefixItems"] = std::move(prefix);
    if (const Schema* const more = Find(schema, "additionalItems"); more != nullptr) {
        Schema others = *more;
        schema["items"] = std::move(others);
        schema.erase("additionalItems");
    }
    return {};
}

// Rewrites draft 4's and OpenAPI 3.0's boolean exclusiveMinimum and exclusiveMaximum.
void KnowExclusive(Schema& schema) {
    for (const auto& [open, closed] :
         {std::pair<const char*, const char*>{"exclusiveMinimum", "minimum"},
          {"exclusiveMaximum", "maximum"}}) {
        const Schema* const found = Find(schema, open);
        if (found == nullptr || !found->is_boolean()) continue;
        const bool out = found->get<bool>();
        schema.erase(open);
        if (!out || !schema.contains(closed)) continue;
        schema[open] = Schema(schema[closed]);
        schema.erase(closed);
    }
}

// Rewrites an object all of whose members match one pattern.
void KnowPatterns(Schema& schema) {
    const Schema* const patterns = Find(schema, "patternProperties");
    const Schema* const more = Find(schema, "additionalProperties");
    const bool alone =
        std::ranges::none_of(
            std::initializer_list<const char*>{"properties", "required", "propertyNames"},
            [&](const char* key) { return schema.contains(key); }) &&
        (more == nullptr || IsNever(*more));
    if (!alone || patterns == nullptr || !patterns->is_object() || patterns->size() != 1) return;
    Schema names = {{"pattern", patterns->begin().key()}}, values = patterns->front();
    schema.erase("patternProperties");
    schema["propertyNames"] = std::move(names);
    schema["additionalProperties"] = std::move(values);
}

// Rewrites OpenAPI 3.0's nullable: null is allowed too.
Status KnowNullable(Schema& schema, const std::string& path) {
    const Schema* const found = Find(schema, "nullable");
    if (found == nullptr) return {};
    if (!found->is_boolean()) return SchemaError(path, "'nullable' must be true or false");
    const bool nullable = found->get<bool>();
    schema.erase("nullable");
    if (!nullable || !HasOtherKeywords(schema, {})) return {};
    WEFT_ASSIGN(std::vector<std::string> types, SchemaTypes(schema, path));
    const bool by_type =
        !types.empty() &&
        !std::ranges::any_of(
            std::initializer_list<const char*>{"enum", "const", "$ref", "allOf", "anyOf", "oneOf"},
            [&](const char* key) { return schema.contains(key); });
    if (!by_type) {
        Schema either = Schema::array({std::move(schema), {{"type", "null"}}});
        schema = Schema{{"anyOf", std::move(either)}};
        return {};
    }
    if (!Has(types, "null")) types.emplace_back("null");
    schema["type"] = types;
    return {};
}

// Whether the schema contains a keyword that the compiler does not support.
bool HasUnknown(const Schema& schema) {
    for (const auto& [key, value] : schema.items()) {
        if (!IsKept(key) || key == "propertyNames" || (key == "items" && value.is_array())) {
            return true;
        }
        if (value.is_boolean() && key.starts_with("exclusive")) return true;
    }
    return false;
}

}  // namespace

Result<std::optional<Schema>> SchemaMerger::Known(const Schema& schema, const std::string& path,
                                                  int depth) {
    if (!HasUnknown(schema)) return std::optional<Schema>();
    if (IsNever(schema)) return std::optional<Schema>(Schema(false));
    WEFT_TRY(Charge(schema, path, depth));
    Schema known = schema;
    if (const Schema* const never = Find(known, "not"); never != nullptr && IsNever(*never)) {
        known.erase("not");
    }
    WEFT_TRY(KnowItems(known, path));
    KnowPatterns(known);
    KnowExclusive(known);
    WEFT_TRY(LeaveCounts(known, path));
    WEFT_TRY(KnowNames(known, path, depth));
    WEFT_TRY(LeaveUnknown(known, path));
    WEFT_TRY(KnowNullable(known, path));
    if (known == schema) return std::optional<Schema>();  // names that must be kept
    return std::optional<Schema>(std::move(known));
}

// Skips keywords that are supported only with a value that restricts nothing.
Status SchemaMerger::LeaveCounts(Schema& schema, const std::string& path) const {
    if (const Schema* const unique = Find(schema, "uniqueItems"); unique != nullptr) {
        if (!unique->is_boolean()) return SchemaError(path, "'uniqueItems' must be true or false");
        if (unique->get<bool>()) {
            WEFT_TRY(leniency_.LeaveOut(
                path, "uniqueItems",
                NotSupported(path, "uniqueItems", " except with the value false")));
        }
        schema.erase("uniqueItems");
    }
    for (const char* const key : {"minProperties", "maxProperties"}) {
        if (!schema.contains(key)) continue;
        WEFT_ASSIGN(const uint32_t count, SchemaCount(schema, key, 0, path));
        const bool least = std::string_view(key) == "minProperties";
        if (!least || count > 0) {
            const Error refusal = NotSupported(path, key, least ? " except with the value 0" : "");
            WEFT_TRY(leniency_.LeaveOut(path, key, refusal));
        }
        schema.erase(key);
    }
    return {};
}

Status SchemaMerger::LeaveUnknown(Schema& schema, const std::string& path) const {
    std::vector<std::string> unknown;
    for (const auto& [key, value] : schema.items()) {
        if (!IsKept(key) && key != "nullable") unknown.push_back(key);
    }
    for (const std::string& key : unknown) {
        WEFT_TRY(leniency_.LeaveOut(path, key, NotSupported(path, key)));
        schema.erase(key);
        // Without the patterns, members that they allow would be rejected.
        const Schema* const more = Find(schema, "additionalProperties");
        if (key == "patternProperties" && more != nullptr && *more == false) {
            schema.erase("additionalProperties");
        }
    }
    return {};
}

// Handles names of properties that are unrestricted or enumerated.
Status SchemaMerger::KnowNames(Schema& schema, const std::string& path, int depth) {
    const Schema* const found = Find(schema, "propertyNames");
    if (found == nullptr) return {};
    WEFT_ASSIGN(const auto flat, Flat(*found, SchemaPath(path, "propertyNames"), depth + 1));
    const Schema names = flat ? *flat : Schema{{"enum", Schema::array()}};
    WEFT_ASSIGN(const auto types, SchemaTypes(names, path));
    const bool texts = types.empty() || Has(types, "string");
    if (texts && !HasOtherKeywords(names, {"type"})) {
        schema.erase("propertyNames");
        return {};
    }
    if (texts && HasOtherKeywords(names, {"type", "enum"}) &&
        HasOtherKeywords(names, {"type", "const"})) {
        return {};
    }
    const Schema* const values = Find(names, "enum");
    Schema listed = values != nullptr ? *values : Schema::array();
    if (const Schema* const one = Find(names, "const"); one != nullptr) listed.push_back(*one);
    if (!texts) listed = Schema::array();
    if (!listed.is_array()) return SchemaError(path, "'enum' of 'propertyNames' is not an array");
    return ListNames(schema, listed, path);
}

// Rewrites to `properties` with only the listed names.
Status SchemaMerger::ListNames(Schema& schema, const Schema& names, const std::string& path) {
    static const Schema kAny = true, kNone = Schema::object();
    const Schema* const known = Find(schema, "properties");
    const Schema* const more = Find(schema, "additionalProperties");
    if (known != nullptr && !known->is_object()) {
        return SchemaError(path, "'properties' is not an object");
    }
    if (names.size() > kMostListedNames) {
        return SchemaError(path, "'propertyNames' has more than {} names", kMostListedNames);
    }
    const size_t count = names.size() + (known != nullptr ? known->size() : 0);
    WEFT_TRY(ChargeComparisons(count, count, path));
    const bool open = more != nullptr || known == nullptr || known->empty();
    Schema properties = Schema::object();
    for (const auto& [name, value] : (known != nullptr ? *known : kNone).items()) {
        properties[name] = Has(names, Schema(name)) ? value : Schema(false);
    }
    for (const Schema& name : names) {
        if (!open || !name.is_string() || properties.contains(name.get<std::string>())) continue;
        WEFT_TRY(Charge(more != nullptr ? *more : kAny, path, 0));
        properties[name.get<std::string>()] = more != nullptr ? *more : kAny;
    }
    schema["properties"] = std::move(properties);
    schema["additionalProperties"] = false;
    schema.erase("propertyNames");
    return {};
}

}  // namespace weft::grammar
