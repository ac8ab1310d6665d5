// Converts lists of messages in training records to OpenAI's form. ShareGPT's members (`from`,
// `value`) become `role` and `content`, with OpenAI's role names.
//
// Errors: kCorrupt; the message does not have the record's place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/template/chat_template.h"

namespace weft::train {

// The role that `said` means in data sets, in any case: system, user, assistant or tool; `call` for
// a function call, `function` for a call or its result. Returns "" for an unknown role.
std::string RoleNamed(std::string_view said);

// The text of a string, or of a number, such as the answer 42; none for other values. A number of
// 2^53 or more that is no 64-bit integer has lost digits, so it has none.
std::optional<std::string> TextOfValue(const chat::OrderedJson& value);
// The kind of a value that has no text, for errors: "boolean", "a number of too many digits".
std::string_view KindOf(const chat::OrderedJson& value);

// Whether the value is a list of objects, or a text that may be the JSON of one.
bool IsListOfObjects(const chat::OrderedJson& value);

// Replaces texts of a table's row by the lists of messages whose JSON they are: a prompt and
// answers. Both answers of a preference stay texts if one is another text. (Records of other files
// have lists; as in TRL, a string there is a text.)
Status ReadListsOfTable(chat::OrderedJson& row);

// value: a list of messages, or a string with such a list as JSON. name: the list's name in errors.
Result<chat::OrderedJson> ListOfMessages(const chat::OrderedJson& value, std::string_view name);

// The functions in the record's `tools`, or in `functions` (the older form). The functions may be a
// list, or a string with a list as JSON, with or without {"type": "function", "function": ...}
// around each function. Null if there are none, or if `tool_choice` or `function_call` is "none".
Result<chat::OrderedJson> ToolsOf(const chat::OrderedJson& record);

// The variables of the chat template in the record's `chat_template_kwargs`, an object or a string
// with one as JSON, without members that are null. Null if there are none.
Result<chat::OrderedJson> TemplateVariablesOf(const chat::OrderedJson& record);

}  // namespace weft::train
