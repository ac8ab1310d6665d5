// POST /v1/chat/completions: OpenAI's Chat Completions API.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/continuation.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr size_t kMostTools = 512;  // per request
inline constexpr size_t kMostMessages = 10'000;

// A checked conversation in OpenAI's form, as input for the chat template.
struct Conversation {
    chat::ChatInput input;
    std::string forced_tool{};   // function named by tool_choice; "*": at least one call of any
    bool parallel_calls = true;  // false: at most one call
    // the request uses `functions`; calls are returned as `function_call`
    bool older_calls = false;
    // The answer continues the last message; the response does not repeat it.
    std::optional<chat::ContinuedPart> continued{};
    std::optional<int64_t> reasoning_budget{};       // absent: the server's value
    std::optional<bool> reasons{};                   // whether the effort requests reasoning
    std::optional<bool> switched{};                  // the value of the switch of reasoning
    std::string switch_member{};                     // the request's member with the switch
    bool hides_reasoning = false;                    // AnswerPlan::hides_reasoning
    std::string effort_member = "reasoning_effort";  // the request's member with the effort
    std::string left_out{};  // members without effect, as LeftMembers::left_out
    ConstraintText constraint{};
    bool adds_special = true;  // the prompt begins with the begin token, if the model requires it
    std::optional<int64_t> kept{};  // ReadKeptTokens
};

// Adds the variables of the chat template that the request sets: chat_template_kwargs, documents.
void ReadTemplateVariables(Fields& fields, Json& variables);
// Reads messages, tools, tool_choice (or the legacy functions and function_call),
// chat_template_kwargs, the members of ReadThinking, add_generation_prompt, continue_final_message
// and a last message's prefix. Reports errors in `fields`.
Conversation ReadConversation(Fields& fields);
// A message's content as one text. Accepts a string or a list of text parts; for an assistant
// message also refusal parts and, if `thought` is not null, parts of reasoning.
Json ReadContent(Fields& fields, const char* name, std::vector<size_t>* parts = nullptr,
                 std::string* thought = nullptr);

// The rendered and tokenized prompt of a conversation, and the parser's initial state.
struct ChatPrompt {
    std::vector<int32_t> tokens;
    bool in_reasoning = false;
    std::string text{};   // text from which the tokens were made
    std::string begun{};  // AnswerPlan::begun
    std::string words{};  // text of the message that the answer continues
};
// Use of a prompt. kComputed: the engine computes it, so it must fit the context. kReturned: the
// client only gets the prompt or its length. The prompt's text may then have kMostPlainBytes bytes,
// or as many as the context could hold if these are more.
enum class PromptUse { kComputed, kReturned };
// Rewrites the conversation's messages to forms that the template accepts
// (chat/template/template_capabilities.h).
std::optional<ApiError> MakePrompt(const Served& served, Conversation& conversation,
                                   ChatPrompt& out, PromptUse use = PromptUse::kComputed);

// Last step of PlanChat and similar: plans `n` choices for the conversation's prompt. The caller
// sets plan.dialect and plan.stream.
std::optional<ApiError> PlanConversation(const Served& served, Conversation& conversation,
                                         engine::Request request, int64_t n, AnswerPlan& plan);

// Plans the whole request. Error: the response for the client.
std::optional<ApiError> PlanChat(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
