// Table of paths and their methods. Used to judge a request's head (gate.h) and to handle the
// request (api.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/openai/embeddings.h"
#include "serve/api/served.h"

namespace weft::serve {

// At most one of `plan`, `embed` and `reply` is set; if none, the Api handles the path (slots).
struct Route {
    std::string_view method, path;
    std::optional<ApiError> (*plan)(const Json&, const Served&, AnswerPlan&) = nullptr;
    std::optional<ApiError> (*embed)(const Json&, const Served&, EmbeddingPlan&) = nullptr;
    std::optional<ApiError> (*reply)(const Json&, const Served&, Json&) = nullptr;
};

// Looks up all POST routes and all routes of Ollama's API; HEAD uses the GET route. Returns null if
// there is no such route. (The Api handles other GETs and stored responses itself.)
const Route* FindRoute(std::string_view method, std::string_view path);

// The path's methods as the Allow header lists them: "GET, HEAD". Returns "" for an unknown path.
std::string AllowedMethods(std::string_view path);

// 405 with the methods in `allowed`; 404 if `allowed` is empty.
ApiError NoSuchRoute(std::string_view method, std::string_view path, std::string_view allowed);

// Whether `allowed`, from AllowedMethods, contains `method`.
bool Lists(std::string_view allowed, std::string_view method);

// Parsed "/v1/responses/ID" (GET, DELETE) or "/v1/responses/ID/input_items" (GET). Nullopt for a
// path of its own below /v1/responses/ (compact).
struct StoredPath {
    std::string_view id;
    bool input_items = false;
};
std::optional<StoredPath> FindStored(std::string_view path);

inline constexpr std::string_view kModelsBelow = "/v1/models/";

}  // namespace weft::serve
