// POST /v1/responses: OpenAI's Responses API for text and functions. A request brings the whole
// conversation or continues a stored response (response_store.h).
#pragma once

#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// Plans the whole request. Error: the response for the client.
std::optional<ApiError> PlanResponse(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
