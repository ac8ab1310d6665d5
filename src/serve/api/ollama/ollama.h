// Ollama's API: its table of routes, model names and errors.
//
//     POST /api/chat, /api/generate       streams of JSON lines, unless "stream" is false
//     POST /api/embed, /api/embeddings
//     POST /api/show, /api/pull           for the served model
//     GET  /api/tags, /api/ps, /api/version
//     POST /api/create, /api/copy, /api/push, DELETE /api/delete     refused: 501
//
// Source: docs/api.md and api/types.go of github.com/ollama/ollama, at kOllamaVersion. Differences
// from Ollama: docs/ollama.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/openai/embeddings.h"
#include "serve/api/routes.h"
#include "serve/api/served.h"

namespace weft::serve {

// The Ollama version whose API is implemented; clients require a minimum version.
inline constexpr const char* kOllamaVersion = "0.12.11";

// POST, GET and DELETE routes. Every `reply` is fast enough to run on the I/O thread.
std::span<const Route> OllamaRoutes();

// Whether errors of this path use Ollama's format: all below /api/ except /api/status.
bool IsOllamaPath(std::string_view path);
// {"error": "..."}
std::string OllamaError(const ApiError& error);

// RFC 3339 time, "2026-11-23T09:30:00.123456789Z": the current time, or a Unix time.
std::string OllamaTime();
std::string OllamaTime(int64_t unix_s);

// A model named by a request, with or without ":latest".
struct OllamaModel {
    std::string asked;    // as the request wrote it; echoed in the answer
    int32_t adapter = 0;  // see Served::NameOf
};
// Reads "model", or the older "name". Puts errors into `error`: 400 without a name, 404 for an
// unknown model.
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
// Entries of /api/tags and /api/ps: the model and its adapters. expires_s: Unix time; nullopt:
// never.
Json OllamaTagEntries(const Served& served);
Json OllamaRunningEntries(const Served& served, std::optional<int64_t> expires_s);
std::optional<ApiError> PlanOllamaPull(const Json& body, const Served& served, AnswerPlan& plan);

}  // namespace weft::serve
