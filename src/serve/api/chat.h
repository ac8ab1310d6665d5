// POST /v1/chat/completions: OpenAI's Chat Completions API.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// A conversation in OpenAI's form, checked, as the chat template wants it.
struct Conversation {
    formats::ChatInput input;
    std::string forced_tool{};  // tool_choice names it; "*": any, but one
    bool parallel_calls = true;
};

// messages, tools, tool_choice, chat_template_kwargs, reasoning_effort. Errors are left in
// `fields`.
Conversation ReadConversation(Fields& fields);

// From a conversation to the tokens of its prompt and what the answer has to be parsed as.
struct ChatPrompt {
    std::vector<int32_t> tokens;
    bool in_reasoning = false;
};
Result<ChatPrompt> MakePrompt(const Served& served, const formats::ChatInput& input);

// Adds to the plan and the choice what response_format and tool_choice ask for. The prompt is
// there. Errors: what the client hears.
std::optional<ApiError> Constrain(const ConstraintText& constraint,
                                  const Conversation& conversation, const ChatPrompt& prompt,
                                  const Served& served, AnswerPlan& plan, ChoicePlan& choice);

// The whole request. Errors: what the client hears.
std::optional<ApiError> PlanChat(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
