// POST /v1/completions: OpenAI's (legacy) Completions API, and /tokenize, /detokenize.
#pragma once

#include <optional>
#include <string>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

std::optional<ApiError> PlanCompletion(const Json& body, const Served& served, AnswerPlan& plan);

// {"prompt": TEXT} or {"messages": [...]} -> {"tokens", "count", "max_model_len"}; with
// "with_pieces" the text of each token, too.
std::optional<ApiError> Tokenize(const Json& body, const Served& served, Json& answer);
// {"tokens": [...]} -> {"prompt": TEXT}
std::optional<ApiError> Detokenize(const Json& body, const Served& served, Json& answer);

}  // namespace weft::serve
