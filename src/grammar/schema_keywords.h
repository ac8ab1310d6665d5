// Keywords of JSON schemas: which there are, what they say in a few words, and what becomes of
// those that a grammar can't keep.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
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

// PATH/KEY, as a JSON pointer spells it; what is beyond some hundred bytes is left out.
std::string SchemaPath(std::string_view path, std::string_view key);

// Whether the grammar of a schema has that keyword, or it says nothing about values.
bool IsKept(std::string_view key);
// Whether JSON schema has it, in any draft, as a keyword that restricts values.
bool IsSchemaKeyword(std::string_view key);
// A keyword other than annotations is there, besides those given.
bool RestrictsBeside(const Schema& schema, std::initializer_list<std::string_view> keys);

// False, or {"not": {}}, as some clients spell it.
bool IsNever(const Schema& schema);

// Types that `schema` allows by "type"; empty: it doesn't say. In the schema's order, "integer" is
// left out beside "number".
Result<std::vector<std::string>> SchemaTypes(const Schema& schema, std::string_view path);
bool HasType(const Schema& value, std::string_view type);

template <typename List>
bool Has(const List& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}
// The member of that name; nullptr: there is none.
const Schema* Find(const Schema& schema, std::string_view key);
// A number of characters or items; a most of more than 100,000 counts as that. kUsage: it is none,
// or a least above it.
Result<uint32_t> SchemaCount(const Schema& schema, const char* key, uint32_t fallback,
                             std::string_view path);

// What becomes of keywords that can't be kept: refused, or left out and noted as "PATH: KEYWORD",
// each once.
class Leniency {
  public:
    static constexpr size_t kMostNotes = 16;
    // left_out: where notes go; may be null.
    Leniency(bool lenient, std::vector<std::string>* left_out)
        : lenient_(lenient), left_out_(left_out) {}
    Leniency Silent() const { return {lenient_, nullptr}; }
    Status LeaveOut(std::string_view path, std::string_view keyword, const Error& refusal) const;

  private:
    bool lenient_;
    std::vector<std::string>* left_out_;
};

}  // namespace weft::grammar
