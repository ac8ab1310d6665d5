// JSON schemas as data: which keywords there are, references, and schemas that hold together
// (allOf, and a schema beside a $ref or anyOf) as one schema.
//
// Errors: kUsage with the schema's path. The work is bounded.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::grammar {

using Schema = nlohmann::ordered_json;

// What a user may see of a path or keyword: cut, without control characters.
std::string ShownPath(std::string_view path);

// "grammar: JSON schema: PATH: ...": of kUsage.
template <typename... Args>
Error SchemaError(std::string_view path, fmt::format_string<Args...> format, Args&&... args) {
    return MakeError(ErrorCode::kUsage, "JSON schema: {}: {}", ShownPath(path),
                     fmt::format(format, std::forward<Args>(args)...));
}

// PATH/KEY, as a JSON pointer spells it.
std::string SchemaPath(std::string_view path, std::string_view key);

// Refuses keywords that aren't known or not supported.
Status CheckKeywords(const Schema& schema, std::string_view path);
// A keyword other than annotations is there, besides those given.
bool RestrictsBeside(const Schema& schema, std::initializer_list<std::string_view> keys);

// Types that `schema` allows by "type"; empty: it doesn't say. In the schema's order, "integer" is
// left out beside "number".
Result<std::vector<std::string>> SchemaTypes(const Schema& schema, std::string_view path);
bool HasType(const Schema& value, std::string_view type);

class SchemaMerger {
  public:
    static constexpr int kMostDepth = 64;
    static constexpr size_t kMostNodes = 1 << 20;  // looked at or copied, all together

    explicit SchemaMerger(const Schema& root) : root_(root) {}

    // What "#/..." stands for.
    Result<const Schema*> Resolve(const Schema& ref, std::string_view path) const;

    // The schema without $ref and allOf at its top. Nothing: no value satisfies it.
    Result<std::optional<Schema>> Flat(const Schema& schema, const std::string& path, int depth);
    // What satisfies both, flat. Nothing: no value does.
    Result<std::optional<Schema>> Both(const Schema& a, const Schema& b, const std::string& path,
                                       int depth);
    // Surely no value that the grammar of `a` lets through satisfies `b`.
    Result<bool> Apart(const Schema& a, const Schema& b, const std::string& path, int depth);

  private:
    Status Charge(const Schema& schema, const std::string& path, int depth);
    Result<std::optional<Schema>> Plain(const Schema& a, const Schema& b, const std::string& path,
                                        int depth);
    Result<std::optional<Schema>> Alternatives(const Schema& a, std::string_view key,
                                               const Schema& b, const std::string& path, int depth);
    Status MergeObjects(const Schema& a, const Schema& b, const std::string& path, int depth,
                        Schema& out);
    Status MergeItems(const Schema& a, const Schema& b, const std::string& path, int depth,
                      Schema& out);
    Result<bool> ApartObjects(const Schema& a, const Schema& b, const std::string& path, int depth);

    const Schema& root_;
    size_t nodes_ = 0;
};

}  // namespace weft::grammar
