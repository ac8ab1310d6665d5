// Lists of messages in training records, in OpenAI's form. ShareGPT's members (`from`, `value`) and
// role names become `role` and `content`.
//
// Errors: kCorrupt, without the place.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

// The role with this name in data sets, in any case: system, user, assistant or tool; `call` for a
// function call, `function` for a call or its result. Empty: unknown.
std::string RoleNamed(std::string_view said);

// value: a list of messages, or a JSON text of one; name: its name in errors.
Result<chat::OrderedJson> ListOfMessages(const chat::OrderedJson& value, std::string_view name);

// The functions in the record's `tools` or older `functions`: a list, or a JSON text of one, with
// or without {"type": "function", "function": ...} around each function. Null if there are none, or
// if `tool_choice` or `function_call` is "none".
Result<chat::OrderedJson> ToolsOf(const chat::OrderedJson& record);

}  // namespace weft::train
