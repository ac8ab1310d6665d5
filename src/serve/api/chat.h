// POST /v1/chat/completions: OpenAI's Chat Completions API.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr size_t kMostTools = 512;  // of a request
inline constexpr size_t kMostMessages = 10'000;

// A conversation in OpenAI's form, checked, as the chat template wants it.
struct Conversation {
    chat::ChatInput input;
    std::string forced_tool{};   // tool_choice names it; "*": any, but one
    bool parallel_calls = true;  // false: one at most
    bool older_calls = false;    // the request has `functions`: a call is `function_call`
    std::string begun{};         // what the answer begins with; it is not said again
    ConstraintText constraint{};
};

// messages, tools, tool_choice (or the older functions, function_call), chat_template_kwargs,
// reasoning_effort. Errors are left in `fields`.
Conversation ReadConversation(Fields& fields);
// A message's content as one text: a string, or a list of parts that are text; or, where `fields`
// are an assistant's, refusals.
Json ReadContent(Fields& fields, const char* name, std::vector<size_t>* parts = nullptr);

// From a conversation to the tokens of its prompt and what the answer has to be parsed as.
struct ChatPrompt {
    std::vector<int32_t> tokens;
    bool in_reasoning = false;
    std::string text{};  // what the tokens were made of
};
// kComputed: it must fit the context. kTold: the client hears of the prompt or of its length, to
// see whether it fits; it has kMostPlainBytes at most, or what the context could hold.
enum class PromptUse { kComputed, kTold };
// The conversation's messages become such as the template takes (chat/tool_form.h).
std::optional<ApiError> MakePrompt(const Served& served, Conversation& conversation,
                                   ChatPrompt& out, PromptUse use = PromptUse::kComputed);

// What PlanChat and its like end with: `n` choices of the prompt that the conversation makes.
// plan.dialect and plan.stream are the caller's.
std::optional<ApiError> PlanConversation(const Served& served, Conversation& conversation,
                                         engine::Request request, int64_t n, AnswerPlan& plan);

// The whole request. Errors: what the client hears.
std::optional<ApiError> PlanChat(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
