// Lists of messages in records of training data, in OpenAI's form: ShareGPT's members (`from`,
// `value`) and its names of roles become `role` and `content`.
//
// Errors: kCorrupt, without the place.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

// The role that has this name in data sets, capitals or not: system, user, assistant or tool;
// `call` for a call of a function, `function` for a call or its result. Empty: unknown.
std::string RoleNamed(std::string_view said);

// value: a list of messages, or such a list as a text of JSON; `name` is what errors call it.
Result<chat::OrderedJson> ListOfMessages(const chat::OrderedJson& value, std::string_view name);

// The record's `tools`, or older `functions`: a list, or such a list as a text of JSON, of
// functions with or without {"type": "function", "function": ...} around them. Null where there are
// none, or `tool_choice` or `function_call` is "none".
Result<chat::OrderedJson> ToolsOf(const chat::OrderedJson& record);

}  // namespace weft::train
