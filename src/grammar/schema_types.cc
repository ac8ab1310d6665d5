#include "grammar/schema_types.h"

#include <algorithm>
#include <functional>

namespace weft::grammar {
namespace {

constexpr int kMostDepth = 16;  // nesting of anyOf and oneOf

const TypeNames& AllTypes() {
    static const TypeNames all = {"array", "boolean", "null", "number", "object", "string"};
    return all;
}

class TypeReader {
  public:
    TypeReader(const Schema& root, MergeBudget& budget)
        : root_(WithoutNulls(root)), merger_(root_, Leniency(true, nullptr), budget) {}

    std::map<std::string, TypeNames, std::less<>> Properties() {
        std::map<std::string, TypeNames, std::less<>> properties;
        const auto add = [&](const Schema& object) -> Status {
            const Schema* const others = Find(object, "additionalProperties");
            if (others != nullptr && others->is_object()) properties[""].merge(TypesOf(*others));
            const Schema* const named = Find(object, "properties");
            if (named == nullptr || !named->is_object()) return {};
            for (const auto& [name, schema] : named->items()) {
                properties[name].merge(TypesOf(schema));
            }
            return {};
        };
        if (!ForCases(root_, 0, add).ok()) (void)add(root_);
        return properties;
    }

  private:
    // Calls `take` with flat schemas, without anyOf and oneOf, one of which a valid value
    // satisfies.
    Status ForCases(const Schema& schema, int depth,
                    const std::function<Status(const Schema&)>& take) {
        if (depth > kMostDepth) return MakeError(ErrorCode::kUsage, "the schema nests too deeply");
        WEFT_ASSIGN(const auto flat, merger_.Flat(schema, "", 0));
        if (!flat) return {};
        for (const std::string key : {"anyOf", "oneOf"}) {
            const Schema* const cases = Find(*flat, key);
            if (cases == nullptr || !cases->is_array()) continue;
            Schema rest = *flat;
            rest.erase(key);
            for (const Schema& one : *cases) {
                WEFT_ASSIGN(const auto both, merger_.Both(rest, one, "", 0));
                if (both) WEFT_TRY(ForCases(*both, depth + 1, take));
            }
            return {};
        }
        return take(*flat);
    }

    TypeNames TypesOf(const Schema& schema) {
        TypeNames types;
        const Status read = ForCases(schema, 0, [&](const Schema& flat) -> Status {
            WEFT_ASSIGN(std::vector<std::string> named, SchemaTypes(flat, ""));
            const Schema *list = Find(flat, "enum"), *single = Find(flat, "const");
            if (list == nullptr && single == nullptr) {
                if (named.empty()) named = ImpliedTypes(flat);
                for (const std::string& type : named) {
                    types.insert(type == "integer" ? "number" : type);
                }
                if (named.empty()) types = AllTypes();
                return {};
            }
            for (const Schema& value : single != nullptr ? Schema::array({*single}) : *list) {
                const bool fits =
                    named.empty() || std::ranges::any_of(named, [&](const auto& type) {
                        return HasType(value, type);
                    });
                if (!fits) continue;
                const auto type = std::ranges::find_if(
                    AllTypes(), [&](const auto& each) { return HasType(value, each); });
                types.insert(type == AllTypes().end() ? "number" : *type);
            }
            return {};
        });
        return read.ok() && !types.empty() ? types : AllTypes();
    }

    const Schema root_;
    SchemaMerger merger_;
};

}  // namespace

std::map<std::string, TypeNames, std::less<>> PropertyTypes(const Schema& schema,
                                                            MergeBudget& budget) {
    return TypeReader(schema, budget).Properties();
}

}  // namespace weft::grammar
