// Tools told in words, for templates that know none: the functions in a system message, calls in
// the assistant's text, results in messages of the user's; and a system message told by the user.
//
// All take time linear in the size of the messages.
#pragma once

#include <string>

#include "chat/answer.h"
#include "chat/chat_template.h"

namespace weft::chat {

// As json.dumps() has it, which is what models have seen.
void AppendJson(const OrderedJson& value, std::string& out);

bool HasCalls(const OrderedJson& message);
bool HasRole(const OrderedJson& message, std::string_view role);
// "" where the member is no text.
std::string TextMember(const OrderedJson& object, const char* name);

// Calls (as in "tool_calls") as a model of that family writes them: kGranite and kPhi a list behind
// <|tool_call|>, kOlmo and kLfm2 as Python calls functions, all others objects within <tool_call>.
std::string CallWords(const OrderedJson& calls, AnswerFamily family);

// The calls of each message become the end of its text.
void CallsAsWords(OrderedJson& messages, AnswerFamily family);
// Results become messages of the user's, <tool_response>...</tool_response>; those in a row, and
// what the user says before or behind them, are one message, as templates without tools want the
// user and the assistant to take turns.
OrderedJson ResultsAsWords(OrderedJson& messages);

// What a model is told of `tools` and how to call them: as `example`, or (empty) within
// <tool_call>.
std::string ToolsWords(const OrderedJson& tools, const std::string& example);
// Adds `words` to the system message at the begin, or makes one.
void AddSystemWords(OrderedJson& messages, const std::string& words);
// The system message at the begin becomes the begin of the user's first message.
void SystemAsUser(OrderedJson& messages);

}  // namespace weft::chat
