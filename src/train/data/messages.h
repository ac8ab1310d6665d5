// Lists of messages in records of training data, in OpenAI's form: ShareGPT's members (`from`,
// `value`) and its names of roles become `role` and `content`.
//
// Errors: kCorrupt, without the place.
#pragma once

#include <string_view>

#include "base/result.h"
#include "chat/chat_template.h"

namespace weft::train {

// value: a list of messages, or such a list as a text of JSON; `name` is what errors call it.
Result<chat::OrderedJson> ListOfMessages(const chat::OrderedJson& value, std::string_view name);

// The record's `tools`: a list, or such a list as a text of JSON, of functions with or without
// {"type": "function", "function": ...} around them. Null where there are none.
Result<chat::OrderedJson> ToolsOf(const chat::OrderedJson& record);

}  // namespace weft::train
