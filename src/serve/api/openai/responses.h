// POST /v1/responses: OpenAI's Responses API for text and tools. A request brings the whole
// conversation or continues a stored response (response_store.h). POST /v1/responses/compact: a
// summary that replaces a long conversation.
#pragma once

#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// Plans the whole request. Error: the response for the client.
std::optional<ApiError> PlanResponse(const Json& body, const Served& served, AnswerPlan& plan);
std::optional<ApiError> PlanCompaction(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
