// POST /v1/rerank (Jina, Cohere, vLLM; with "texts", TEI's form) and /v1/score (vLLM): scores of
// pairs of texts.
//
// A reranker (model_files/score_head.h) reads the query and one document per request of the engine,
// so a long list is computed a few documents at a time, between other requests. An embedding model
// scores a pair by the cosine of its two vectors, as in vLLM.
#pragma once

#include <optional>

#include "serve/api/fields.h"
#include "serve/api/openai/embeddings.h"
#include "serve/api/served.h"

namespace weft::serve {

std::optional<ApiError> PlanRerank(const Json& body, const Served& served, EmbeddingPlan& plan);
std::optional<ApiError> PlanScore(const Json& body, const Served& served, EmbeddingPlan& plan);

}  // namespace weft::serve
