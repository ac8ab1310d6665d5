// Messages and tools of the Messages API as a conversation for the chat template.
//
//     tools       with `input_schema`: functions. Anthropic's tools that the client runs (bash,
//                 text_editor, memory): functions with the schema that Anthropic documents. Tools
//                 that Anthropic's servers run: left out.
//     deferred    (`defer_loading`) offered once a tool_reference names them; from the start if the
//                 request has a tool_search_tool, which is left out
//     blocks      calls and results of Anthropic's servers in the history become calls and tool
//                 messages; documents of text become text; images and PDFs in tool results become
//                 notes, and elsewhere they are refused
#pragma once

#include <set>
#include <string>

#include "serve/api/fields.h"
#include "serve/api/openai/chat.h"

namespace weft::serve {

// Reads system, messages, tools and tool_choice. notices: as AnswerPlan::notices. Reports errors in
// `fields`.
void ReadTurnsAndTools(Fields& fields, Conversation& conversation, std::set<std::string>& notices);

}  // namespace weft::serve
