// Reads the tool calls that models write: the texts between a family's markers.
//
// Each gives the calls of one text, or none at all where any part of it can't be read: then the
// caller shows the text as it is.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "chat/answer.h"

namespace weft::chat {

using Calls = std::optional<std::vector<ToolCall>>;

// {"name": ..., "arguments": {...}} (or "parameters"), or the XML of Qwen's coders:
// <function=NAME><parameter=KEY>VALUE</parameter></function>.
Calls ReadQwenCall(std::string_view text);
// JSON objects one after the other, with ";", "," or white space between.
Calls ReadLlamaCalls(std::string_view text);
// "function<sep>NAME\n```json\n{...}\n```", or "NAME<sep>{...}".
Calls ReadDeepSeekCall(std::string_view text);
// "[{...}, {...}]", or "NAME[ARGS]{...}".
Calls ReadMistralCalls(std::string_view text);

// Text as JSON; discarded where it is none.
OrderedJson ReadJson(std::string_view text);
std::string_view TrimBlanks(std::string_view text);

}  // namespace weft::chat
