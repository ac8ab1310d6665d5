// tool_choice where it is an object: a function that must be called, or those that may be.
#pragma once

#include <string>

#include "serve/api/chat.h"
#include "serve/api/fields.h"

namespace weft::serve {

// The answer has to call that function, which must be one of the conversation's tools. member: of
// the request, which names it.
void ForceTool(Fields& fields, const std::string& name, Conversation& conversation,
               const char* member = "tool_choice");

// {"mode": "auto" or "required", "tools": [...]}: the conversation keeps these of its tools, and
// with "required" the answer has to call one of them. A tool is {"function": {"name"}} as in chat
// completions, or {"name"} as in responses. path: where `allowed` is, for messages
// ("tool_choice."). Errors, tools that the conversation doesn't have among them, are left in
// `fields`.
void AllowTools(Fields& fields, const Json& allowed, const std::string& path,
                Conversation& conversation);

}  // namespace weft::serve
