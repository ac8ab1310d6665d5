#include "grammar/schema_merge.h"

#include <algorithm>
#include <utility>

#include "grammar/escapes.h"

namespace weft::grammar {
namespace {

// Keeps the stricter of two numbers.
void MergeNumber(std::string_view key, bool larger, const Schema& a, const Schema& b, Schema& out) {
    const Schema *left = Find(a, key), *right = Find(b, key);
    if (left == nullptr && right == nullptr) return;
    if (left == nullptr || right == nullptr) {
        out[std::string(key)] = left != nullptr ? *left : *right;
        return;
    }
    const bool take_left = larger ? *left >= *right : *left <= *right;
    out[std::string(key)] = take_left ? *left : *right;
}

// The values of const or enum; nullopt: neither.
Result<std::optional<Schema>> Values(const Schema& schema, std::string_view path) {
    const Schema* values = Find(schema, "enum");
    const Schema* single = Find(schema, "const");
    if (values != nullptr && !values->is_array()) {
        return SchemaError(path, "'enum' is not an array");
    }
    if (single == nullptr) {
        return values != nullptr ? std::optional<Schema>(*values) : std::nullopt;
    }
    Schema one = Schema::array();
    if (values == nullptr || Has(*values, *single)) one.push_back(*single);
    return std::optional<Schema>(std::move(one));
}

size_t ListSize(const Schema* list) {
    return list == nullptr ? 0 : list->size();
}

Error TogetherTooLarge(const std::string& path) {
    return SchemaError(path, "too large with its references, 'allOf' and 'anyOf' expanded");
}

}  // namespace

Result<const Schema*> SchemaMerger::Resolve(const Schema& ref, std::string_view path) const {
    if (!ref.is_string()) return SchemaError(path, "'$ref' is not a string");
    const std::string& text = ref.get_ref<const std::string&>();
    if (!text.starts_with("#") || (text.size() > 1 && text[1] != '/')) {
        return SchemaError(path,
                           "'$ref' is '{}'; only references within this schema are supported, such "
                           "as '#/$defs/name'",
                           ShownPath(text));
    }
    const Schema* at = &root_;
    for (size_t begin = 1; begin < text.size();) {
        const size_t end = std::min(text.find('/', begin + 1), text.size());
        std::string key;
        for (size_t i = begin + 1; i < end; ++i) {
            const auto escape = text[i] == '%' ? HexNumber(text, i + 1, 2) : std::nullopt;
            if (escape) {
                key += static_cast<char>(*escape);
                i += 2;
            } else if (text[i] == '~' && i + 1 < end &&
                       (text[i + 1] == '0' || text[i + 1] == '1')) {
                key += text[++i] == '0' ? '~' : '/';
            } else {
                key += text[i];
            }
        }
        size_t digits = 0;
        const auto index = DecimalNumber(key, digits, 1'000'000);
        if (at->is_object() && at->contains(key)) {
            at = &(*at)[key];
        } else if (at->is_array() && index && digits == key.size() && *index < at->size()) {
            at = &(*at)[*index];
        } else {
            return SchemaError(path, "'$ref' is '{}', which does not exist in the schema",
                               ShownPath(text));
        }
        begin = end;
    }
    return at;
}

Status SchemaMerger::Charge(const Schema& schema, const std::string& path, int depth) {
    if (depth > kMostDepth) {
        return SchemaError(path, "schemas nest or refer to each other deeper than {}", kMostDepth);
    }
    std::vector<const Schema*> open = {&schema};
    while (!open.empty()) {
        const Schema& one = *open.back();
        open.pop_back();
        size_t nodes = 1;
        if (one.is_string()) {
            nodes += one.get_ref<const std::string&>().size() / MergeBudget::kTextNodeBytes;
        }
        if (one.is_array()) {
            for (const Schema& inner : one) open.push_back(&inner);
        } else if (one.is_object()) {
            for (const auto& [name, inner] : one.get_ref<const Schema::object_t&>()) {
                nodes += name.size() / MergeBudget::kTextNodeBytes;
                open.push_back(&inner);
            }
        }
        budget_.nodes -= std::min(budget_.nodes, nodes);
        if (budget_.nodes == 0) return TogetherTooLarge(path);
    }
    return {};
}

Status SchemaMerger::ChargeComparisons(size_t a, size_t b, const std::string& path) {
    if (a > 0 && b > budget_.comparisons / a) return TogetherTooLarge(path);
    budget_.comparisons -= a * b;
    return {};
}

Result<std::optional<Schema>> SchemaMerger::Flat(const Schema& schema, const std::string& path,
                                                 int depth) {
    WEFT_TRY(Charge(schema, path, depth));
    if (schema.is_boolean()) {
        return schema.get<bool>() ? std::optional<Schema>(Schema::object()) : std::nullopt;
    }
    if (!schema.is_object()) return SchemaError(path, "expected an object, true or false");
    WEFT_ASSIGN(const auto known, Known(schema, path, depth));
    if (known) return Flat(*known, path, depth);
    const Schema *ref = Find(schema, "$ref"), *all = Find(schema, "allOf");
    if (ref == nullptr && all == nullptr) return std::optional<Schema>(schema);
    Schema rest = schema;
    rest.erase("$ref");
    rest.erase("allOf");
    std::optional<Schema> merged = std::move(rest);
    if (ref != nullptr) {
        WEFT_ASSIGN(const Schema* const target, Resolve(*ref, path));
        WEFT_ASSIGN(merged, Both(*merged, *target, path, depth + 1));
    }
    if (all == nullptr || !merged) return merged;
    if (!all->is_array()) return SchemaError(path, "'allOf' is not an array");
    for (const Schema& one : *all) {
        WEFT_ASSIGN(merged, Both(*merged, one, path, depth + 1));
        if (!merged) break;
    }
    return merged;
}

Result<std::optional<Schema>> SchemaMerger::Both(const Schema& a, const Schema& b,
                                                 const std::string& path, int depth) {
    WEFT_ASSIGN(const std::optional<Schema> left, Flat(a, path, depth + 1));
    WEFT_ASSIGN(const std::optional<Schema> right, Flat(b, path, depth + 1));
    if (!left || !right) return std::optional<Schema>();
    for (const std::string_view key : {"anyOf", "oneOf"}) {
        if (left->contains(key)) return Alternatives(*left, key, *right, path, depth);
        if (right->contains(key)) return Alternatives(*right, key, *left, path, depth);
    }
    return Plain(*left, *right, path, depth);
}

// Merges each alternative of `a` with b and the rest of a.
Result<std::optional<Schema>> SchemaMerger::Alternatives(const Schema& a, std::string_view key,
                                                         const Schema& b, const std::string& path,
                                                         int depth) {
    const Schema alternatives = *Find(a, key);
    if (!alternatives.is_array()) return SchemaError(path, "'{}' is not an array", key);
    Schema rest = a;
    rest.erase(std::string(key));
    WEFT_ASSIGN(const std::optional<Schema> others, Both(rest, b, path, depth + 1));
    if (!others) return std::optional<Schema>();
    Schema merged = Schema::array();
    for (const Schema& one : alternatives) {
        WEFT_ASSIGN(std::optional<Schema> both, Both(one, *others, path, depth + 1));
        if (both) merged.push_back(std::move(*both));
    }
    if (merged.empty()) return std::optional<Schema>();
    return std::optional<Schema>(Schema{{std::string(key), std::move(merged)}});
}

Result<std::optional<Schema>> SchemaMerger::Plain(const Schema& a, const Schema& b,
                                                  const std::string& path, int depth) {
    Schema out = Schema::object();
    WEFT_ASSIGN(const auto types, SchemaTypes(a, path));
    WEFT_ASSIGN(const auto other_types, SchemaTypes(b, path));
    if (!types.empty() || !other_types.empty()) {
        Schema both = Schema::array();
        for (const std::string& type : types.empty() ? other_types : types) {
            const bool free = types.empty() || other_types.empty() || Has(other_types, type);
            if (free || (type == "integer" && Has(other_types, "number"))) {
                both.push_back(type);
            } else if (type == "number" && Has(other_types, "integer")) {
                both.push_back("integer");
            }
        }
        if (both.empty()) return std::optional<Schema>();
        out["type"] = std::move(both);
    }
    WEFT_ASSIGN(const auto values, Values(a, path));
    WEFT_ASSIGN(const auto other_values, Values(b, path));
    if (values || other_values) {
        if (values && other_values) {
            WEFT_TRY(ChargeComparisons(values->size(), other_values->size(), path));
        }
        Schema both = Schema::array();
        for (const Schema& value : values ? *values : *other_values) {
            if (!values || !other_values || Has(*other_values, value)) both.push_back(value);
        }
        if (both.empty()) return std::optional<Schema>();
        out["enum"] = std::move(both);
    }
    for (const std::string_view key : {"minimum", "exclusiveMinimum", "minLength", "minItems"}) {
        MergeNumber(key, true, a, b, out);
    }
    for (const std::string_view key : {"maximum", "exclusiveMaximum", "maxLength", "maxItems"}) {
        MergeNumber(key, false, a, b, out);
    }
    for (const std::string key : {"pattern", "format", "multipleOf"}) {
        const Schema *left = Find(a, key), *right = Find(b, key);
        if (left != nullptr && right != nullptr && *left != *right) {
            WEFT_TRY(leniency_.LeaveOut(
                path, key,
                SchemaError(path, "combining two different '{}' is not supported", key)));
        }
        if (left != nullptr || right != nullptr) out[key] = left != nullptr ? *left : *right;
    }
    if (const Schema* left = Find(a, "propertyNames"), *right = Find(b, "propertyNames");
        left != nullptr && right != nullptr) {
        out["propertyNames"] = Schema{{"allOf", Schema::array({*left, *right})}};
    } else if (left != nullptr || right != nullptr) {
        out["propertyNames"] = left != nullptr ? *left : *right;
    }
    WEFT_TRY(MergeItems(a, b, path, depth, out));
    WEFT_TRY(MergeObjects(a, b, path, depth, out));
    return std::optional<Schema>(std::move(out));
}

Status SchemaMerger::MergeItems(const Schema& a, const Schema& b, const std::string& path,
                                int depth, Schema& out) {
    const Schema *left = Find(a, "items"), *right = Find(b, "items");
    const Schema *prefix = Find(a, "prefixItems"), *other = Find(b, "prefixItems");
    if (prefix != nullptr || other != nullptr) {
        const bool alone =
            prefix != nullptr ? other == nullptr && right == nullptr : left == nullptr;
        out["prefixItems"] = prefix != nullptr ? *prefix : *other;
        if (!alone) {
            WEFT_TRY(leniency_.LeaveOut(
                path, "items",
                SchemaError(path, "combining 'prefixItems' with other items is not supported")));
            const Schema* const more = prefix != nullptr ? left : right;
            if (more != nullptr) out["items"] = *more;
            return {};
        }
    }
    if (left != nullptr && right != nullptr) {
        WEFT_ASSIGN(auto both, Both(*left, *right, SchemaPath(path, "items"), depth + 1));
        out["items"] = both ? std::move(*both) : Schema(false);
    } else if (left != nullptr || right != nullptr) {
        out["items"] = left != nullptr ? *left : *right;
    }
    return {};
}

Status SchemaMerger::MergeObjects(const Schema& a, const Schema& b, const std::string& path,
                                  int depth, Schema& out) {
    static const Schema kAny = true, kNone = Schema::object();
    const auto part = [](const Schema& schema, std::string_view key, const Schema& none) {
        const Schema* found = Find(schema, key);
        return found != nullptr ? found : &none;
    };
    const Schema *left = part(a, "properties", kNone), *right = part(b, "properties", kNone);
    const Schema* left_more = part(a, "additionalProperties", kAny);
    const Schema* right_more = part(b, "additionalProperties", kAny);
    if (!left->is_object() || !right->is_object()) {
        return SchemaError(path, "'properties' is not an object");
    }
    const size_t names = left->size() + right->size();
    WEFT_TRY(ChargeComparisons(names, names, path));
    Schema properties = Schema::object();
    const auto merge = [&](const std::string& name) -> Status {
        const auto in_left = left->find(name), in_right = right->find(name);
        const Schema& one = in_left != left->end() ? *in_left : *left_more;
        const Schema& two = in_right != right->end() ? *in_right : *right_more;
        if (one == kAny || two == kAny) {
            properties[name] = one == kAny ? two : one;
            return {};
        }
        WEFT_ASSIGN(auto both, Both(one, two, SchemaPath(path, name), depth + 1));
        properties[name] = both ? std::move(*both) : Schema(false);
        return {};
    };
    for (const auto& [name, value] : left->items()) WEFT_TRY(merge(name));
    for (const auto& [name, value] : right->items()) {
        if (!left->contains(name)) WEFT_TRY(merge(name));
    }
    if (a.contains("properties") || b.contains("properties")) {
        out["properties"] = std::move(properties);
    }
    if (a.contains("additionalProperties") || b.contains("additionalProperties")) {
        WEFT_ASSIGN(auto both, Both(*left_more, *right_more, path, depth + 1));
        out["additionalProperties"] = both ? std::move(*both) : Schema(false);
    }
    for (const Schema* from : {&a, &b}) {
        const Schema* required = Find(*from, "required");
        if (required == nullptr) continue;
        if (!required->is_array()) return SchemaError(path, "'required' is not an array");
        Schema& all = out["required"];
        WEFT_TRY(ChargeComparisons(required->size(), required->size() + all.size(), path));
        for (const Schema& name : *required) {
            if (!Has(all, name)) all.push_back(name);
        }
    }
    return {};
}

Result<bool> SchemaMerger::Apart(const Schema& a, const Schema& b, const std::string& path,
                                 int depth) {
    WEFT_ASSIGN(const std::optional<Schema> left, Flat(a, path, depth + 1));
    WEFT_ASSIGN(const std::optional<Schema> right, Flat(b, path, depth + 1));
    if (!left || !right) return true;
    for (const std::string_view key : {"anyOf", "oneOf"}) {
        for (const auto& [some, other] : {std::pair(&*left, &*right), {&*right, &*left}}) {
            const Schema* alternatives = Find(*some, key);
            if (alternatives == nullptr || !alternatives->is_array()) continue;
            for (const Schema& one : *alternatives) {
                WEFT_ASSIGN(const bool apart, some == &*left ? Apart(one, *other, path, depth + 1)
                                                             : Apart(*other, one, path, depth + 1));
                if (!apart) return false;
            }
            return true;
        }
    }
    // The merged schema is only examined, so nothing that it skips is noted.
    const Leniency noting = std::exchange(leniency_, leniency_.Silent());
    const auto together = Plain(*left, *right, path, depth + 1);
    leniency_ = noting;
    WEFT_ASSIGN(const auto plain, together);
    if (!plain) return true;  // no common type or value
    WEFT_ASSIGN(const auto types, SchemaTypes(*plain, path));
    if (const Schema* values = Find(*plain, "enum"); values != nullptr && !types.empty()) {
        return std::none_of(values->begin(), values->end(), [&](const Schema& value) {
            return std::any_of(types.begin(), types.end(),
                               [&](const std::string& type) { return HasType(value, type); });
        });
    }
    if (types != std::vector<std::string>{"object"}) return false;
    return ApartObjects(*left, *right, path, depth);
}

// Two objects are disjoint if both require a property whose schemas are disjoint, or if `b`
// requires a property that the grammar of `a` cannot have, or the reverse if b excludes it.
Result<bool> SchemaMerger::ApartObjects(const Schema& a, const Schema& b, const std::string& path,
                                        int depth) {
    static const Schema kNone = Schema::object(), kEmpty = Schema::array();
    const auto part = [](const Schema& schema, std::string_view key, const Schema& none) {
        const Schema* found = Find(schema, key);
        return found != nullptr ? found : &none;
    };
    const Schema *left = part(a, "properties", kNone), *right = part(b, "properties", kNone);
    const Schema *needs = part(a, "required", kEmpty), *other_needs = part(b, "required", kEmpty);
    const Schema *more = Find(a, "additionalProperties"), *other = Find(b, "additionalProperties");
    const bool left_closed = more != nullptr ? *more == false : !left->empty();
    WEFT_TRY(ChargeComparisons(ListSize(needs) + ListSize(other_needs),
                               ListSize(left) + ListSize(right) + ListSize(needs), path));
    for (const Schema& name : *other_needs) {
        if (left_closed && name.is_string() && !left->contains(name.get<std::string>()) &&
            !Has(*needs, name)) {
            return true;
        }
    }
    for (const Schema& name : *needs) {
        if (!name.is_string()) continue;
        const auto key = name.get<std::string>();
        if (other != nullptr && *other == false && !right->contains(key)) return true;
        if (!left->contains(key) || !right->contains(key)) continue;
        WEFT_ASSIGN(const bool apart, Apart((*left)[key], (*right)[key], path, depth + 1));
        if (apart) return true;
    }
    return false;
}

}  // namespace weft::grammar
