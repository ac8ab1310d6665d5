// POST /v1/completions: OpenAI's (legacy) Completions API.
#pragma once

#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

std::optional<ApiError> PlanCompletion(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
