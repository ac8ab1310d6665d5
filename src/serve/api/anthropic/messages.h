// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API (version 2023-06-01),
// text and tools.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// Plans the whole request. Error: the response for the client.
std::optional<ApiError> PlanMessages(const Json& body, const Served& served, AnswerPlan& plan);

// Takes the same request and answers {"input_tokens": N}.
std::optional<ApiError> CountMessageTokens(const Json& body, const Served& served,
                                           AnswerPlan& plan);

// prompt_tokens: the count in the stream's first event.
std::unique_ptr<Dialect> MakeMessagesDialect(const Served& served, int64_t prompt_tokens,
                                             int32_t adapter = 0);

// The event of a stream that has nothing to send.
std::string AnthropicPing();

// Anthropic's error body: {"type": "error", "error": {"type", "message"}}.
std::string AnthropicError(const ApiError& error);

}  // namespace weft::serve
