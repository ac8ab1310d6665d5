// Parsers of tool calls: the text between a family's markers.
//
// Each parser returns the calls of one text, or nullopt if any part of the text is invalid. The
// caller then treats the text as content. `types` gives the types of arguments written as plain
// text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/call_tags.h"
#include "chat/tool_types.h"

namespace weft::chat {

using Calls = std::optional<std::vector<ToolCall>>;
using CallReader = Calls (*)(std::string_view text, const ToolTypes& types);

// Inside <tool_call>: {"name": ..., "arguments": {...}} (or "parameters"), a list of these,
// Qwen-Coder's XML <function=NAME><parameter=KEY>VALUE</parameter></function>, or GLM's
// NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>.
Calls ReadTaggedCall(std::string_view text, const ToolTypes& types);
// As ReadTaggedCall and ReadBareFunction, for Qwen-Coder's XML whose values have no line ends
// around them (Seed-OSS, MiMo V2).
Calls ReadTightTaggedCall(std::string_view text, const ToolTypes& types);
Calls ReadTightFunction(std::string_view text, const ToolTypes& types);
// Hy3: NAME<tool_sep>, then pairs as in GLM; each tag ends in ":opensource>".
Calls ReadHunyuanCall(std::string_view text, const ToolTypes& types);
// LongCat: as ReadTaggedCall; the tags of its pairs begin with "longcat_".
Calls ReadLongcatCall(std::string_view text, const ToolTypes& types);
// <function=NAME>, then parameters as in Qwen-Coder's XML, or a JSON object (Llama). The end tag
// may be missing.
Calls ReadBareFunction(std::string_view text, const ToolTypes& types);
// [{"name": ..., "arguments": {...}}, ...] (or "tool_name"), or a single such object.
Calls ReadCallList(std::string_view text, const ToolTypes& types);
// Apertus: [{"NAME": {...}}, ...].
Calls ReadNamedCalls(std::string_view text, const ToolTypes& types);
// JSON objects separated by ";", "," or white space. Each must have arguments.
Calls ReadLlamaCalls(std::string_view text);
// "function<sep>NAME\n```json\n{...}\n```", or "NAME<sep>{...}".
Calls ReadDeepSeekCall(std::string_view text, const ToolTypes& types);
// "[{...}, {...}]", or "NAME[ARGS]{...}", or "NAME[CALL_ID]...[ARGS]{...}".
Calls ReadMistralCalls(std::string_view text, const ToolTypes& types);
// "functions.NAME:0<|tool_call_argument_begin|>{...}".
Calls ReadKimiCall(std::string_view text, const ToolTypes& types);
// One or more <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>.
Calls ReadMiniMaxCalls(std::string_view text, const ToolTypes& types);
// MiniMax M3: a mark before each tag; the tag of an argument is the argument's key: MARK<invoke
// name="NAME">MARK<KEY>VALUE MARK</KEY>MARK</invoke>. A value may be nested tags: an object's keys,
// or MARK<item> for each list element.
Calls ReadMiniMaxM3Calls(std::string_view text, const ToolTypes& types);
// As ReadMiniMaxCalls, with DeepSeek's bars in each tag: <|DSML|invoke name="NAME"><|DSML|parameter
// name="KEY" string="true">VALUE</|DSML|parameter></|DSML|invoke>; with "false" the value is JSON.
Calls ReadDsmlCalls(std::string_view text, const ToolTypes& types);
// Muse Glimmer: as ReadMiniMaxCalls, with tags that begin with "atem:".
Calls ReadAtemCalls(std::string_view text, const ToolTypes& types);
// "ID<|tool_call:name|>NAME<|tool_call:args|>{...}".
Calls ReadSolarCall(std::string_view text, const ToolTypes& types);

// GigaChat 3.5: the format of ReadDsmlCalls with GCML between the bars.
Calls ReadGcmlCalls(std::string_view text, const ToolTypes& types);
// MiniCPM 5: <function name="NAME"><param name="KEY">VALUE</param>; VALUE may be <![CDATA[...]]>.
Calls ReadMiniCpmCalls(std::string_view text, const ToolTypes& types);
// Hunyuan: as ReadCallList, or <tool_call>NAME\n```json\n{...}\n```</tool_call>, repeated.
Calls ReadHunyuanList(std::string_view text, const ToolTypes& types);
// Command R: as ReadCallList. If the model calls "directly-answer", the list is empty.
Calls ReadActions(std::string_view text, const ToolTypes& types);

// What TagStream reads of the formats of ReadTaggedCall, ReadTightTaggedCall, ReadLongcatCall,
// ReadMiniMaxCalls, ReadDsmlCalls and ReadGcmlCalls.
extern const std::span<const TaggedCall> kTaggedCalls, kTightCalls, kLongcatCalls, kMiniMaxCalls,
    kDsmlCalls, kGcmlCalls;

// A function's name: at most 256 bytes without white space, brackets and quotes.
bool IsCallName(std::string_view text);
// Parses JSON; returns a discarded value on error. ReadWrittenJson repairs what JsonRepair can.
OrderedJson ReadJson(std::string_view text);
OrderedJson ReadWrittenJson(std::string_view text);
// A call whose arguments are complete; they stay text if they are no JSON.
ToolCall CallAsWritten(std::string name, std::string arguments);
std::string_view TrimBlanks(std::string_view text);
// Without the quotes around the text, if it has any.
std::string_view WithoutQuotes(std::string_view text);

}  // namespace weft::chat
