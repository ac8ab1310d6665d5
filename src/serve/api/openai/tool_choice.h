// tool_choice as an object: a function that must be called, or a list of allowed functions. Also
// lists kinds of tools that are left out of requests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/api/openai/chat.h"

namespace weft::serve {

// Forces a call of function `name`, which must be among the conversation's tools. member: the
// request member that names it.
void ForceTool(Fields& fields, const std::string& name, Conversation& conversation,
               const char* member = "tool_choice");

// Reads {"mode": "auto" or "required", "tools": [...]}. The conversation keeps only these tools;
// with "required" the answer must call one of them. A tool is {"function": {"name"}} (chat
// completions) or {"name"} (responses). path: prefix of member names in messages ("tool_choice.").
// Reports errors in `fields`, including unknown tools.
void AllowTools(Fields& fields, const Json& allowed, const std::string& path,
                Conversation& conversation);

// The one of `kinds` that `type` is a version of ("web_search_20250305"); empty: none.
std::string_view KindOf(std::span<const std::string_view> kinds, std::string_view type);
// The log's sentence about tools of this kind, which are left out. Returns "" for an unknown kind.
std::string NoticeOfTools(std::string_view kind);

}  // namespace weft::serve
