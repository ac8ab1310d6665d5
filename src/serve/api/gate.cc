#include "serve/api/gate.h"

#include <fmt/format.h>

#include <charconv>

#include "serve/api/anthropic/messages.h"
#include "serve/api/dialect.h"
#include "serve/api/llama/llama_dialect.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/responses_dialect.h"
#include "serve/api/routes.h"

namespace weft::serve {
namespace {

// Larger bodies are refused, since nothing would use them, and the client may have no key.
constexpr uint64_t kMostUnreadBytes = 4096;

bool HasSmallBody(const HttpRequest& head) {
    const std::string_view length = head.Header("Content-Length");  // validated by the parser
    uint64_t bytes = UINT64_MAX;
    std::from_chars(length.data(), length.data() + length.size(), bytes);
    return bytes <= kMostUnreadBytes;
}

Refusal Refused(const HttpRequest& head, const ApiError& error, Headers headers = {}) {
    return {error.status, error.message, error.code, std::move(headers),
            ErrorFor(head.path, error)};
}

Refusal NoRoute(const HttpRequest& head, const std::string& allowed) {
    Headers headers;
    if (!allowed.empty()) headers.emplace_back("Allow", allowed);
    return Refused(head, NoSuchRoute(head.method, head.path, allowed), std::move(headers));
}

}  // namespace

HeadVerdict JudgeHead(const HttpRequest& head, KeyStore* keys) {
    HeadVerdict verdict;
    if (head.method != "POST") {
        if (HasSmallBody(head)) return verdict;
        const std::string allowed = AllowedMethods(head.path);
        if (!allowed.empty() && !Lists(allowed, head.method)) {
            verdict.refusal = NoRoute(head, allowed);
            return verdict;
        }
        const std::string message =
            fmt::format("A {} request to this path may have a body of at most {} bytes.",
                        head.method, kMostUnreadBytes);
        verdict.refusal = Refused(head, {400, message, "", ""});
        return verdict;
    }
    if (keys != nullptr) {
        const std::string_view key = PresentedKey(head);
        const std::shared_ptr<const KeyRing> ring = keys->ring();
        const ApiKey* known = ring->Find(key);
        if (known == nullptr) {
            verdict.refusal = Refused(head, NoKey(key), {{"WWW-Authenticate", "Bearer"}});
            return verdict;
        }
        verdict.client = known->name;
    }
    if (FindRoute(head.method, head.path) == nullptr) {
        verdict.refusal = NoRoute(head, AllowedMethods(head.path));
    }
    return verdict;
}

ApiError NoKey(std::string_view key) {
    const char* message = key.empty()
                              ? "You didn't provide an API key. Send it as 'Authorization: Bearer "
                                "KEY'."
                              : "Incorrect API key provided.";
    return {401, message, "", "invalid_api_key"};
}

Refusal NotServing(std::string_view path, const std::string& why, const std::string& code) {
    const ApiError error{503, why, "", code};
    return {error.status, error.message, error.code, {{"Retry-After", "5"}}, ErrorFor(path, error)};
}

Refusal WhileLoading(std::string_view path) {
    return NotServing(path, "The model is loading.", "loading");
}

void SendAlive(Exchange& exchange) {
    exchange.Send(200, {{"Content-Type", "application/json"}}, R"({"status":"alive"})");
}

std::string ErrorFor(std::string_view path, const ApiError& error) {
    if (path.starts_with("/v1/messages")) return AnthropicError(error);
    if (path.starts_with("/v1/responses")) return ResponsesError(error);
    if (path == "/completion" || path == "/infill") return LlamaError(error);
    return IsOllamaPath(path) ? OllamaError(error) : OpenAiError(error);
}

}  // namespace weft::serve
