// Keywords of JSON schemas: classification, values, and treatment of unsupported keywords.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::grammar {

using Schema = nlohmann::ordered_json;

// A path or keyword shortened for messages, without control characters.
std::string ShownPath(std::string_view path);

// A kUsage error "JSON schema: PATH: ...".
template <typename... Args>
Error SchemaError(std::string_view path, fmt::format_string<Args...> format, Args&&... args) {
    return MakeError(ErrorCode::kUsage, "JSON schema: {}: {}", ShownPath(path),
                     fmt::format(format, std::forward<Args>(args)...));
}

// PATH/KEY as a JSON pointer; shortened to a few hundred bytes.
std::string SchemaPath(std::string_view path, std::string_view key);

// Whether grammars support the keyword, or it does not restrict values.
bool IsKept(std::string_view key);
// Whether some draft of JSON schema has the keyword and it restricts values.
bool IsSchemaKeyword(std::string_view key);
// Whether the schema has keywords other than annotations and `keys`.
bool HasOtherKeywords(const Schema& schema, std::initializer_list<std::string_view> keys);

// Whether the schema is false, or {"not": {}} as some clients write it.
bool IsNever(const Schema& schema);

// The schema without keywords that are null, which Go's clients write for absent lists and objects.
// Nulls that are values (const, enum, default, examples) remain.
Schema WithoutNulls(const Schema& schema);

// The types that the keywords of a schema without "type" apply to; empty: any.
std::vector<std::string> ImpliedTypes(const Schema& schema);
// The types allowed by "type", in the schema's order; empty: "type" is absent. "integer" is omitted
// if "number" is allowed too.
Result<std::vector<std::string>> SchemaTypes(const Schema& schema, std::string_view path);
bool HasType(const Schema& value, std::string_view type);

template <typename List>
bool Has(const List& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}
// The member named `key`; nullptr if absent.
const Schema* Find(const Schema& schema, std::string_view key);
// A count of characters or items. A maximum above 100,000 counts as 100,000. kUsage: not a count,
// or a minimum above 100,000.
Result<uint32_t> SchemaCount(const Schema& schema, const char* key, uint32_t fallback,
                             std::string_view path);

// Treatment of unsupported keywords: reject, or skip and note as "PATH: KEYWORD", each once.
class Leniency {
  public:
    static constexpr size_t kMostNotes = 16;
    // left_out: receives the notes; may be null.
    Leniency(bool lenient, std::vector<std::string>* left_out)
        : lenient_(lenient), left_out_(left_out) {}
    bool lenient() const { return lenient_; }
    Leniency Silent() const { return {lenient_, nullptr}; }
    Leniency Lenient() const { return {true, left_out_}; }
    Status LeaveOut(std::string_view path, std::string_view keyword, const Error& refusal) const;

  private:
    bool lenient_;
    std::vector<std::string>* left_out_;
};

}  // namespace weft::grammar
