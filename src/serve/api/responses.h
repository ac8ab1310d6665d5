// POST /v1/responses: OpenAI's Responses API, text and functions. A conversation comes whole with
// each request, or goes on from a response that is stored (response_store.h).
#pragma once

#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// The whole request. Errors: what the client hears.
std::optional<ApiError> PlanResponse(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
