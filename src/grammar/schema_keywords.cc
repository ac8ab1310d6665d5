#include "grammar/schema_keywords.h"

#include <array>
#include <cmath>

#include "base/json_digits.h"

namespace weft::grammar {
namespace {

constexpr uint32_t kMostCount = 100'000;
constexpr size_t kMostShownPath = 200;
constexpr size_t kMostPath = 2 * kMostShownPath;  // longer paths are cut

// Annotations, which do not restrict values.
constexpr std::array<std::string_view, 30> kAnnotations = {"title",
                                                           "description",
                                                           "default",
                                                           "examples",
                                                           "example",
                                                           "$schema",
                                                           "$id",
                                                           "id",
                                                           "$comment",
                                                           "deprecated",
                                                           "readOnly",
                                                           "writeOnly",
                                                           "$defs",
                                                           "definitions",
                                                           "contentMediaType",
                                                           "contentEncoding",
                                                           "discriminator",
                                                           "externalDocs",
                                                           "xml",
                                                           "$anchor",
                                                           "strict",
                                                           "name",
                                                           "enumNames",
                                                           "markdownDescription",
                                                           "contentSchema",
                                                           "$vocabulary",
                                                           "$dynamicAnchor",
                                                           "propertyOrdering",
                                                           "enumDescriptions",
                                                           "errorMessage"};
constexpr std::array<std::string_view, 24> kSupported = {"type",
                                                         "properties",
                                                         "required",
                                                         "additionalProperties",
                                                         "items",
                                                         "prefixItems",
                                                         "minItems",
                                                         "maxItems",
                                                         "enum",
                                                         "const",
                                                         "anyOf",
                                                         "oneOf",
                                                         "allOf",
                                                         "$ref",
                                                         "minLength",
                                                         "maxLength",
                                                         "pattern",
                                                         "format",
                                                         "minimum",
                                                         "maximum",
                                                         "exclusiveMinimum",
                                                         "exclusiveMaximum",
                                                         "propertyNames",
                                                         "multipleOf"};
// Keywords whose values are not schemas, and those that hold schemas by name.
constexpr std::array<std::string_view, 5> kValueKeywords = {"const", "enum", "default", "examples",
                                                            "example"};
constexpr std::array<std::string_view, 5> kNamesOfSchemas = {
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "string", "integer",
                                                    "number", "array",   "object"};

// Keywords that grammars do not support directly.
constexpr std::array<std::string_view, 20> kNotKept = {"not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "contains",
                                                       "minContains",
                                                       "maxContains",
                                                       "uniqueItems",
                                                       "additionalItems",
                                                       "unevaluatedItems",
                                                       "minProperties",
                                                       "maxProperties",
                                                       "patternProperties",
                                                       "unevaluatedProperties",
                                                       "dependentRequired",
                                                       "dependentSchemas",
                                                       "dependencies",
                                                       "nullable",
                                                       "$dynamicRef",
                                                       "$recursiveRef"};

bool IsAnnotation(std::string_view key) {
    return Has(kAnnotations, key) || key.starts_with("x-");
}

}  // namespace

std::string ShownPath(std::string_view path) {
    std::string out;
    for (const char c : path.substr(0, kMostShownPath)) {
        const auto byte = static_cast<uint8_t>(c);
        out += byte < 0x20 || byte >= 0x7f ? '?' : c;
    }
    return path.size() > kMostShownPath ? out + "..." : out;
}

std::string SchemaPath(std::string_view path, std::string_view key) {
    std::string out(path);
    if (out.size() > kMostPath) return out;
    out += '/';
    for (const char c : key.substr(0, kMostPath)) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

bool IsKept(std::string_view key) {
    return Has(kSupported, key) || IsAnnotation(key);
}

bool IsSchemaKeyword(std::string_view key) {
    return Has(kSupported, key) || Has(kNotKept, key);
}

bool HasOtherKeywords(const Schema& schema, std::initializer_list<std::string_view> keys) {
    for (const auto& [key, value] : schema.items()) {
        if (!IsAnnotation(key) && !Has(keys, key)) return true;
    }
    return false;
}

bool IsNever(const Schema& schema) {
    const Schema* const never = schema.is_object() ? Find(schema, "not") : nullptr;
    if (never == nullptr) return schema == false;
    return *never == true || (never->is_object() && !HasOtherKeywords(*never, {}));
}

Schema WithoutNulls(const Schema& schema) {
    if (schema.is_array()) {
        Schema kept = Schema::array();
        for (const Schema& each : schema) kept.push_back(WithoutNulls(each));
        return kept;
    }
    if (!schema.is_object()) return schema;
    Schema kept = Schema::object();
    auto& members = kept.get_ref<Schema::object_t&>();  // a vector: appends faster than operator[]
    for (const auto& [key, value] : schema.items()) {
        const bool values = Has(kValueKeywords, key);
        if (value.is_null() && (!values || key == "enum")) continue;
        if (!Has(kNamesOfSchemas, key) || !value.is_object()) {
            members.emplace_back(key, values ? value : WithoutNulls(value));
            continue;
        }
        Schema named = Schema::object();
        for (const auto& [name, each] : value.items()) {
            named.get_ref<Schema::object_t&>().emplace_back(name, WithoutNulls(each));
        }
        members.emplace_back(key, std::move(named));
    }
    return kept;
}

std::vector<std::string> ImpliedTypes(const Schema& schema) {
    const std::pair<const char*, std::vector<const char*>> about[] = {
        {"object", {"properties", "required", "additionalProperties", "propertyNames"}},
        {"array", {"items", "prefixItems", "minItems", "maxItems"}},
        {"string", {"minLength", "maxLength", "pattern", "format"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
    std::vector<std::string> types;
    for (const auto& [type, keys] : about) {
        const bool spoken = std::any_of(keys.begin(), keys.end(),
                                        [&](const char* key) { return schema.contains(key); });
        if (spoken) types.emplace_back(type);
    }
    return types;
}

Result<std::vector<std::string>> SchemaTypes(const Schema& schema, std::string_view path) {
    std::vector<std::string> types;
    const Schema* type = Find(schema, "type");
    if (type == nullptr) return types;
    if (type->is_array() && type->empty()) return SchemaError(path, "'type' is an empty list");
    for (const Schema& one : type->is_array() ? *type : Schema::array({*type})) {
        if (!one.is_string() || !Has(kTypes, one.get_ref<const std::string&>())) {
            return SchemaError(
                path, "'type' must be null, boolean, string, integer, number, array or object");
        }
        if (!Has(types, one.get_ref<const std::string&>())) types.push_back(one);
    }
    if (Has(types, "number")) std::erase(types, "integer");
    return types;
}

bool HasType(const Schema& value, std::string_view type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "number") return NumberOf(value).has_value();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (!value.is_number_float()) return NumberOf(value).has_value();
    const double number = value.get<double>();
    return number == std::floor(number);
}

const Schema* Find(const Schema& schema, std::string_view key) {
    const auto at = schema.find(std::string(key));
    return at == schema.end() ? nullptr : &*at;
}

Result<uint32_t> SchemaCount(const Schema& schema, const char* key, uint32_t fallback,
                             std::string_view path) {
    const Schema* const found = Find(schema, key);
    if (found == nullptr) return fallback;
    double count = NumberOf(*found).value_or(-1);
    if (std::string_view(key).starts_with("max")) count = std::min<double>(count, kMostCount);
    if (!(count >= 0 && count <= kMostCount) || count != std::floor(count)) {
        return SchemaError(path, "'{}' is not an integer from 0 to {}", key, kMostCount);
    }
    return static_cast<uint32_t>(count);
}

Status Leniency::LeaveOut(std::string_view path, std::string_view keyword,
                          const Error& refusal) const {
    if (!lenient_) return refusal;
    if (left_out_ == nullptr || left_out_->size() >= kMostNotes) return {};
    std::string note = ShownPath(path) + ": " + ShownPath(keyword);
    if (!Has(*left_out_, note)) left_out_->push_back(std::move(note));
    return {};
}

}  // namespace weft::grammar
