// Plain-text forms of tools, for templates without tool support: functions in a system message,
// calls in the assistant's text, results in user messages; also a system message inside a user
// message.
//
// All functions take time linear in the size of the messages.
#pragma once

#include <string>

#include "chat/answer.h"
#include "chat/template/chat_template.h"

namespace weft::chat {

// Appends JSON in the format of Python's json.dumps(), which models are trained on.
void AppendJson(const OrderedJson& value, std::string& out);

bool HasCalls(const OrderedJson& message);
bool HasRole(const OrderedJson& message, std::string_view role);
// "" if the member is not a string.
std::string TextMember(const OrderedJson& object, const char* name);

// Calls ("tool_calls") in the family's format: kGranite and kPhi as a list after <|tool_call|>,
// kOlmo and kLfm2 as Python calls, others as objects inside <tool_call>.
std::string CallWords(const OrderedJson& calls, ToolCallFormat family);

// Appends each message's calls to its text.
void CallsAsWords(OrderedJson& messages, ToolCallFormat family);
// Turns results into user messages, <tool_response>...</tool_response>. Consecutive results and
// adjacent user text become one message, since such templates require user and assistant to
// alternate.
OrderedJson ResultsAsWords(OrderedJson& messages);

// Adds the content of each result as JSON (kResponseMember), for ChatInput::results_in_turn.
// Content that is not JSON, or exceeds the values that all results of a conversation share, remains
// text.
void ReadResponses(OrderedJson& messages);

// System text that lists `tools` and explains how to call them, with `example` as the format;
// empty: <tool_call>.
std::string ToolsWords(const OrderedJson& tools, const std::string& example);
// Appends `words` to the first system message, or inserts one.
void AddSystemWords(OrderedJson& messages, const std::string& words);
// join_opening: joins the system messages that open the conversation to one. late_as_user: turns
// other system messages into user messages, joined with adjacent ones, since such templates may
// require user and assistant to alternate.
OrderedJson FitSystems(bool join_opening, bool late_as_user, OrderedJson& messages);
// join: joins consecutive user messages, and consecutive texts of the assistant, by an empty line.
// Messages that have calls, that have a reasoning of their own, or whose training weight differs
// stay. answer: inserts a text of the assistant between results and a user message.
OrderedJson FitTurns(bool join, bool answer, OrderedJson& messages);
// Moves the first system message into the first user message.
void SystemAsUser(OrderedJson& messages);

}  // namespace weft::chat
