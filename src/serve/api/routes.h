// Which paths there are and which methods each takes. Asked by the head of a request alone (gate.h)
// and by whoever answers it (api.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/api/answer.h"
#include "serve/api/embeddings.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

// One of `plan`, `embed` and `reply` is there.
struct Route {
    std::string_view method, path;
    std::optional<ApiError> (*plan)(const Json&, const Served&, AnswerPlan&) = nullptr;
    std::optional<ApiError> (*embed)(const Json&, const Served&, EmbeddingPlan&) = nullptr;
    std::optional<ApiError> (*reply)(const Json&, const Served&, Json&) = nullptr;
};

// Every POST, and what else Ollama's API has; HEAD is as GET. Null: there is no such. (Other GETs
// and stored responses are the Api's own.)
const Route* FindRoute(std::string_view method, std::string_view path);

// The methods that a path takes, as the header Allow lists them: "GET, HEAD". Empty: there is no
// such path.
std::string AllowedMethods(std::string_view path);

// 405 for a path that takes other methods, which `allowed` lists; 404 where it is empty.
ApiError NoSuchRoute(std::string_view method, std::string_view path, std::string_view allowed);

// Whether AllowedMethods' `allowed` has that one.
bool Lists(std::string_view allowed, std::string_view method);

// "/v1/responses/ID", which GET and DELETE take, and "/v1/responses/ID/input_items", which GET
// does.
struct StoredPath {
    std::string_view id;
    bool input_items = false;
};
std::optional<StoredPath> FindStored(std::string_view path);

inline constexpr std::string_view kModelsBelow = "/v1/models/";

}  // namespace weft::serve
