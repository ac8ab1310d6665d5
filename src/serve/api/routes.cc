#include "serve/api/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "serve/api/anthropic/messages.h"
#include "serve/api/llama/llama_server.h"
#include "serve/api/llama/slots.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/chat.h"
#include "serve/api/openai/completions.h"
#include "serve/api/openai/responses.h"
#include "serve/api/rerank.h"
#include "serve/page.h"

namespace weft::serve {
namespace {

constexpr Route kPosts[] = {
    {.method = "POST", .path = "/v1/chat/completions", .plan = PlanChat},
    {.method = "POST", .path = "/v1/completions", .plan = PlanCompletion},
    {.method = "POST", .path = "/v1/embeddings", .embed = PlanEmbeddings},
    {.method = "POST", .path = "/v1/rerank", .embed = PlanRerank},
    {.method = "POST", .path = "/v2/rerank", .embed = PlanRerank},
    {.method = "POST", .path = "/rerank", .embed = PlanRerank},
    {.method = "POST", .path = "/v1/score", .embed = PlanScore},
    {.method = "POST", .path = "/score", .embed = PlanScore},
    {.method = "POST", .path = "/v1/responses", .plan = PlanResponse},
    {.method = "POST", .path = "/v1/responses/compact", .plan = PlanCompaction},
    {.method = "POST", .path = "/v1/messages", .plan = PlanMessages},
    {.method = "POST", .path = "/v1/messages/count_tokens", .plan = CountMessageTokens},
    // llama-server's paths without "/v1".
    {.method = "POST", .path = "/chat/completions", .plan = PlanChat},
    {.method = "POST", .path = "/completions", .plan = PlanCompletion},
    {.method = "POST", .path = "/embeddings", .embed = PlanEmbeddings},
    {.method = "POST", .path = "/completion", .plan = PlanPlainCompletion},
    {.method = "POST", .path = "/infill", .plan = PlanInfill},
    {.method = "POST", .path = "/tokenize", .plan = PlanTokenize},
    {.method = "POST", .path = "/detokenize", .reply = Detokenize},
    {.method = "POST", .path = "/apply-template", .plan = ApplyTemplate},
    {.method = "POST", .path = kSlotsBelow},
};

constexpr std::string_view kGets[] = {"/v1/models", "/models",     "/live",           "/health",
                                      "/healthz",   "/v1/health",  "/ready",          "/metrics",
                                      "/props",     "/api/status", "/tokenizer_info", "/slots"};

const Route* FindIn(std::span<const Route> routes, std::string_view method, std::string_view path) {
    const auto found = std::ranges::find_if(
        routes, [&](const Route& route) { return route.method == method && route.path == path; });
    return found == routes.end() ? nullptr : &*found;
}

bool TakesGet(std::string_view path) {
    return std::ranges::find(kGets, path) != std::end(kGets) || IsPage(path) ||
           path.starts_with(kModelsBelow) || FindStored(path);
}

}  // namespace

const Route* FindRoute(std::string_view method, std::string_view path) {
    if (method == "HEAD") method = "GET";
    if (path == kSlotsBelow) return nullptr;  // "/slots/" names no slot
    if (SlotOfPath(path)) path = kSlotsBelow;
    const Route* route = FindIn(kPosts, method, path);
    return route != nullptr ? route : FindIn(OllamaRoutes(), method, path);
}

std::optional<StoredPath> FindStored(std::string_view path) {
    constexpr std::string_view kBelow = "/v1/responses/", kItems = "/input_items";
    if (!path.starts_with(kBelow) || FindRoute("POST", path) != nullptr) return std::nullopt;
    StoredPath stored{path.substr(kBelow.size())};
    stored.input_items = stored.id.ends_with(kItems);
    if (stored.input_items) stored.id.remove_suffix(kItems.size());
    if (stored.id.empty() || stored.id.find('/') != std::string_view::npos) return std::nullopt;
    return stored;
}

bool Lists(std::string_view allowed, std::string_view method) {
    return fmt::format(", {}, ", allowed).find(fmt::format(", {}, ", method)) != std::string::npos;
}

std::string AllowedMethods(std::string_view path) {
    std::string methods;
    const auto add = [&](bool takes, std::string_view words) {
        if (takes) methods += fmt::format("{}{}", methods.empty() ? "" : ", ", words);
    };
    const std::optional<StoredPath> stored = FindStored(path);
    add(TakesGet(path) || FindRoute("GET", path) != nullptr, "GET, HEAD");
    add(FindRoute("POST", path) != nullptr, "POST");
    add((stored && !stored->input_items) || FindRoute("DELETE", path) != nullptr, "DELETE");
    return methods;
}

ApiError NoSuchRoute(std::string_view method, std::string_view path, std::string_view allowed) {
    const std::string asked = fmt::format("{} {}", method.substr(0, 40), path.substr(0, 200));
    if (allowed.empty()) {
        return {404, fmt::format("Unknown path: {}.", asked), "", "unknown_url"};
    }
    return {405, fmt::format("{} is not allowed; the path accepts {}.", asked, allowed), "",
            "method_not_supported"};
}

}  // namespace weft::serve
