#include "serve/api/ollama/ollama.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <ctime>

#include "base/text.h"
#include "serve/api/dialect.h"
#include "serve/api/openai/model_lists.h"

namespace weft::serve {
namespace {

constexpr std::array kOllamaRoutes = {
    Route{.method = "POST", .path = "/api/chat", .plan = PlanOllamaChat},
    Route{.method = "POST", .path = "/api/generate", .plan = PlanOllamaGenerate},
    Route{.method = "POST", .path = "/api/embed", .embed = PlanOllamaEmbed},
    Route{.method = "POST", .path = "/api/embeddings", .embed = PlanOllamaEmbeddings},
    Route{.method = "POST", .path = "/api/show", .reply = OllamaShow},
    Route{.method = "POST", .path = "/api/pull", .plan = PlanOllamaPull},
    Route{.method = "POST", .path = "/api/push", .reply = OllamaRefuse},
    Route{.method = "POST", .path = "/api/create", .reply = OllamaRefuse},
    Route{.method = "POST", .path = "/api/copy", .reply = OllamaRefuse},
    Route{.method = "DELETE", .path = "/api/delete", .reply = OllamaRefuse},
    Route{.method = "GET", .path = "/api/tags", .reply = OllamaTags},
    Route{.method = "GET", .path = "/api/ps", .reply = OllamaRunning},
    Route{.method = "GET", .path = "/api/version", .reply = OllamaVersion},
};

std::string TimeText(int64_t unix_s, int64_t ns) {
    return fmt::format("{}.{:09}Z", UtcText(unix_s, "%Y-%m-%dT%H:%M:%S"), ns);
}

}  // namespace

std::span<const Route> OllamaRoutes() {
    return kOllamaRoutes;
}

bool IsOllamaPath(std::string_view path) {
    return path.starts_with("/api/") && path != "/api/status";
}

std::string OllamaError(const ApiError& error) {
    if (!error.full) return Dump({{"error", error.message}});
    const FullContext& full = *error.full;
    const char* const words =
        error.param.starts_with("input")
            ? "the input length exceeds the context length"
            : "the prompt is longer than the context length currently available to the model";
    return Dump(
        {{"error", fmt::format("{}: {}{} tokens, at most {}; shorten it, or start the server "
                               "with a larger --ctx",
                               words, full.at_least ? "at least " : "", full.tokens,
                               full.context - (full.answers ? 1 : 0))}});
}

std::string OllamaTime() {
    const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
    return TimeText(ns / 1'000'000'000, ns % 1'000'000'000);
}

std::string OllamaTime(int64_t unix_s) {
    return TimeText(unix_s, 0);
}

OllamaModel ReadOllamaModel(Fields& fields, const Served& served, std::optional<ApiError>& error) {
    OllamaModel model{fields.Text("model", "")};
    if (model.asked.empty()) model.asked = fields.Text("name", "");
    if (model.asked.empty()) fields.Fail("model", "model is required", "missing");
    error = fields.error();
    if (error) return model;
    const std::optional<int32_t> adapter = served.AdapterOf(model.asked);
    if (!adapter) error = UnknownOllamaModel(model.asked, {&served, 1});
    model.adapter = adapter.value_or(0);
    return model;
}

}  // namespace weft::serve
