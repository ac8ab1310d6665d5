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

// The whole request. Errors: what the client hears.
std::optional<ApiError> PlanMessages(const Json& body, const Served& served, AnswerPlan& plan);

// The same request -> {"input_tokens": N}
std::optional<ApiError> CountMessageTokens(const Json& body, const Served& served, Json& answer);

// prompt_tokens: what the begin of a stream says.
std::unique_ptr<Dialect> MakeMessagesDialect(const Served& served, int64_t prompt_tokens,
                                             int32_t adapter = 0);

// {"type": "error", "error": {"type", "message"}} as Anthropic has it.
std::string AnthropicError(const ApiError& error);

}  // namespace weft::serve
