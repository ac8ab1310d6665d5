// llama-server's endpoints besides OpenAI's: POST /completion, /infill, /tokenize, /detokenize,
// /apply-template, GET /props. /tokenize and /detokenize also accept vLLM's form.
// Source: llama.cpp, tools/server/README.md.
#pragma once

#include <optional>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// Returns an error if the model has no FIM tokens. param: the field that requested FIM.
std::optional<ApiError> CheckFim(const Served& served, const char* param);

// Reads input_prefix, input_suffix, input_extra, prompt, n_predict and sampling options. If the
// context is too small, drops context files first, then the text farthest from the gap.
std::optional<ApiError> PlanInfill(const Json& body, const Served& served, AnswerPlan& plan);

// Reads prompt, n_predict, json_schema or grammar (constraint.h), and sampling options.
std::optional<ApiError> PlanPlainCompletion(const Json& body, const Served& served,
                                            AnswerPlan& plan);

// llama-server: {"content", ...}; vLLM: {"prompt"} or {"messages"}. The body is written directly,
// without one JSON value per token.
std::optional<ApiError> PlanTokenize(const Json& body, const Served& served, AnswerPlan& plan);
std::optional<ApiError> Detokenize(const Json& body, const Served& served, Json& answer);
// Renders a conversation to its prompt text.
std::optional<ApiError> ApplyTemplate(const Json& body, const Served& served, AnswerPlan& plan);

// The server's settings.
Json PropsJson(const Served& served);
// GET /tokenizer_info as in vLLM: the chat template and the special tokens' texts.
Json TokenizerInfoJson(const Served& served);

}  // namespace weft::serve
