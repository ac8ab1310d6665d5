// What llama-server's clients ask for beside OpenAI's API, in its words: POST /completion, /infill,
// /tokenize, /detokenize, /apply-template, GET /props. /tokenize and /detokenize are vLLM's, too.
// Source: llama.cpp, tools/server/README.md.
#pragma once

#include <optional>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// Nothing; or why this model fills in no middles. param: what asked for it.
std::optional<ApiError> CheckFim(const Served& served, const char* param);

// input_prefix, input_suffix, input_extra, prompt, n_predict, and how tokens are chosen. What the
// context has no room for is left out: other files, then what is farthest from the gap.
std::optional<ApiError> PlanInfill(const Json& body, const Served& served, AnswerPlan& plan);

// prompt, n_predict, json_schema or grammar (constraint.h), and how tokens are chosen. Markers in a
// prompt's text become their tokens, as clients render conversations themselves.
std::optional<ApiError> PlanPlainCompletion(const Json& body, const Served& served,
                                            AnswerPlan& plan);

// {"content", ...} as llama-server takes and answers it; {"prompt"} or {"messages"} as vLLM.
// (It is worded without a value of JSON for each token.)
std::optional<ApiError> PlanTokenize(const Json& body, const Served& served, AnswerPlan& plan);
std::optional<ApiError> Detokenize(const Json& body, const Served& served, Json& answer);
// A conversation as the text of its prompt.
std::optional<ApiError> ApplyTemplate(const Json& body, const Served& served, Json& answer);

// What the server is set to.
Json PropsJson(const Served& served);
// GET /tokenizer_info, as vLLM: the chat template, and the texts of special tokens.
Json TokenizerInfoJson(const Served& served);

}  // namespace weft::serve
