// Values as text: str() and repr() as Python prints them, and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "chat/value.h"

namespace weft::chat::jinja {

// str(): what {{ value }} prints. Nothing for undefined.
Value Str(Meter& meter, const Value& value);
void AppendStr(TextBuilder& builder, const Value& value);
void AppendRepr(TextBuilder& builder, const Value& value);

// A float with the shortest digits that read back the same: "1.0", "1e+16".
std::string FloatText(double value);

struct JsonStyle {
    std::optional<std::string> indent;  // one level's; none: all on one line
    bool own_separators = false;        // else ",": with an indent, ", ": without
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool ascii = false;
    bool sort_keys = false;
};
// json.dumps(). Fails for what JSON has no words for, undefined among them.
Value ToJson(Meter& meter, const Value& value, const JsonStyle& style);

}  // namespace weft::chat::jinja
