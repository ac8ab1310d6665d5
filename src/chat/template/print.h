// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "chat/template/value.h"

namespace weft::chat::jinja {

// str(), the output of {{ value }}; empty for undefined.
Value Str(Meter& meter, const Value& value);
void AppendStr(TextBuilder& builder, const Value& value);
void AppendRepr(TextBuilder& builder, const Value& value);

// Shortest decimal text that reads back to the same float: "1.0", "1e+16".
std::string FloatText(double value);

struct JsonStyle {
    std::optional<std::string> indent;  // indent per level; nullopt: one line
    bool own_separators = false;        // false: "," and ": " with an indent, ", " and ": " without
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool ascii = false;
    bool sort_keys = false;
};
// json.dumps(). Fails for values that JSON cannot represent, such as undefined.
Value ToJson(Meter& meter, const Value& value, const JsonStyle& style);

}  // namespace weft::chat::jinja
