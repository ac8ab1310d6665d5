// Ollama's API, for programs that know no other: its table of routes, names of models, errors.
//
//     POST /api/chat, /api/generate       streams of JSON lines, unless "stream" is false
//     POST /api/embed, /api/embeddings
//     POST /api/show, /api/pull           of the model that is served
//     GET  /api/tags, /api/ps, /api/version
//     POST /api/create, /api/copy, /api/push, DELETE /api/delete     refused: 501
//
// Source: docs/api.md and api/types.go of github.com/ollama/ollama, as of kOllamaVersion. What a
// server with one model can't do as Ollama does it: docs/ollama.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "serve/api/answer.h"
#include "serve/api/embeddings.h"
#include "serve/api/fields.h"
#include "serve/api/routes.h"
#include "serve/api/served.h"

namespace weft::serve {

// Whose API this is; clients ask for a least one.
inline constexpr const char* kOllamaVersion = "0.12.11";

// Its POST, GET and DELETE; a reply takes no time worth a thread.
std::span<const Route> OllamaRoutes();

// Whether errors of this path are worded as Ollama's: below /api/, but for /api/status.
bool IsOllamaPath(std::string_view path);
// {"error": "..."}
std::string OllamaError(const ApiError& error);

// "2026-11-23T09:30:00.123456789Z"; of now, or of a Unix time.
std::string OllamaTime();
std::string OllamaTime(int64_t unix_s);

// A model that a request names, with ":latest" or without.
struct OllamaModel {
    std::string asked;    // as it was written, for the answer
    int32_t adapter = 0;  // Served::NameOf
};
// "model", or the older "name". Errors, 400 without a name and 404 for another model, are left in
// `error`.
OllamaModel ReadOllamaModel(Fields& fields, const Served& served, std::optional<ApiError>& error);

// ollama_request.cc
std::optional<ApiError> PlanOllamaChat(const Json& body, const Served& served, AnswerPlan& plan);
std::optional<ApiError> PlanOllamaGenerate(const Json& body, const Served& served,
                                           AnswerPlan& plan);
// ollama_embed.cc
std::optional<ApiError> PlanOllamaEmbed(const Json& body, const Served& served,
                                        EmbeddingPlan& plan);
std::optional<ApiError> PlanOllamaEmbeddings(const Json& body, const Served& served,
                                             EmbeddingPlan& plan);
// ollama_models.cc
std::optional<ApiError> OllamaTags(const Json& body, const Served& served, Json& answer);
std::optional<ApiError> OllamaRunning(const Json& body, const Served& served, Json& answer);
std::optional<ApiError> OllamaVersion(const Json& body, const Served& served, Json& answer);
std::optional<ApiError> OllamaShow(const Json& body, const Served& served, Json& answer);
std::optional<ApiError> OllamaRefuse(const Json& body, const Served& served, Json& answer);
std::optional<ApiError> PlanOllamaPull(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
