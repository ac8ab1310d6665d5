// Reads the tool calls that models write: the texts between a family's markers.
//
// Each gives the calls of one text, or none at all where any part of it can't be read: then the
// caller shows the text as it is. `types` says what arguments are that come as plain text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/tool_types.h"

namespace weft::chat {

using Calls = std::optional<std::vector<ToolCall>>;
using CallReader = Calls (*)(std::string_view text, const ToolTypes& types);

// What stands within <tool_call>: {"name": ..., "arguments": {...}} (or "parameters"), a list of
// such, the XML of Qwen's coders, <function=NAME><parameter=KEY>VALUE</parameter></function>, or
// GLM's: NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>.
Calls ReadTaggedCall(std::string_view text, const ToolTypes& types);
// Hy3's: NAME<tool_sep>, then pairs as GLM's; each tag ends in ":opensource>".
Calls ReadHunyuanCall(std::string_view text, const ToolTypes& types);
// <function=NAME>, then parameters as above, or (Llama) an object; the end may be missing.
Calls ReadBareFunction(std::string_view text, const ToolTypes& types);
// [{"name": ..., "arguments": {...}}, ...] (or "tool_name"), or one of these objects.
Calls ReadCallList(std::string_view text, const ToolTypes& types);
// JSON objects one after the other, with ";", "," or white space between. All have arguments.
Calls ReadLlamaCalls(std::string_view text);
// "function<sep>NAME\n```json\n{...}\n```", or "NAME<sep>{...}".
Calls ReadDeepSeekCall(std::string_view text, const ToolTypes& types);
// "[{...}, {...}]", or "NAME[ARGS]{...}", or "NAME[CALL_ID]...[ARGS]{...}".
Calls ReadMistralCalls(std::string_view text, const ToolTypes& types);
// "functions.NAME:0<|tool_call_argument_begin|>{...}".
Calls ReadKimiCall(std::string_view text, const ToolTypes& types);
// <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>, one or several.
Calls ReadMiniMaxCalls(std::string_view text, const ToolTypes& types);
// MiniMax M3's: a mark stands before each tag, and a tag is named as its key: MARK<invoke
// name="NAME">MARK<KEY>VALUE MARK</KEY>MARK</invoke>. Values may be tags: of an object its keys, of
// a list MARK<item>.
Calls ReadMiniMaxM3Calls(std::string_view text, const ToolTypes& types);
// As MiniMax M2's with DeepSeek's bars: <|DSML|invoke name="NAME"><|DSML|parameter name="KEY"
// string="true">VALUE</|DSML|parameter></|DSML|invoke>; with "false" the value is JSON.
Calls ReadDsmlCalls(std::string_view text, const ToolTypes& types);
// "ID<|tool_call:name|>NAME<|tool_call:args|>{...}".
Calls ReadAtemCalls(std::string_view text, const ToolTypes& types);
Calls ReadSolarCall(std::string_view text, const ToolTypes& types);

// Text as JSON; discarded where it is none. Written: line ends and tabs in its texts may be bare.
OrderedJson ReadJson(std::string_view text);
OrderedJson ReadWrittenJson(std::string_view text);
// "\n" as the two characters that JSON has for it. Precondition: c is a control character.
void AppendEscapedControl(char c, std::string& out);
std::string_view TrimBlanks(std::string_view text);

}  // namespace weft::chat
