#include "serve/api/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "serve/api/dialect.h"
#include "serve/api/messages.h"
#include "serve/api/ollama.h"

namespace weft::serve {
namespace {

constexpr std::string_view kPostPaths[] = {"/v1/chat/completions",
                                           "/v1/completions",
                                           "/v1/embeddings",
                                           "/v1/responses",
                                           "/v1/messages",
                                           "/v1/messages/count_tokens",
                                           "/infill",
                                           "/tokenize",
                                           "/detokenize",
                                           "/apply-template"};

// More is refused: it would be read for nobody, and for strangers, too.
constexpr uint64_t kMostUnreadBytes = 4096;

bool HasSmallBody(const HttpRequest& head) {
    const std::string_view length = head.Header("Content-Length");  // the parser has checked it
    uint64_t bytes = UINT64_MAX;
    std::from_chars(length.data(), length.data() + length.size(), bytes);
    return bytes <= kMostUnreadBytes;
}

Refusal Refused(const HttpRequest& head, const ApiError& error, Headers headers = {}) {
    return {error.status, error.message, error.code, std::move(headers),
            ErrorFor(head.path, error)};
}

}  // namespace

HeadVerdict JudgeHead(const HttpRequest& head, KeyStore* keys) {
    HeadVerdict verdict;
    if (head.method != "POST") {
        if (HasSmallBody(head)) return verdict;
        const std::string message =
            fmt::format("A request with {} has no body here, or one of {} bytes at most.",
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
    if (std::ranges::find(kPostPaths, head.path) == std::end(kPostPaths) &&
        FindOllamaRoute(head.method, head.path) == nullptr) {
        verdict.refusal =
            Refused(head, {404, fmt::format("There is no POST {} here.", head.path.substr(0, 200)),
                           "", "unknown_url"});
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

Refusal WhileLoading(std::string_view path) {
    const ApiError error{503, "The model is being loaded.", "", "loading"};
    return {error.status, error.message, error.code, {{"Retry-After", "5"}}, ErrorFor(path, error)};
}

std::string ErrorFor(std::string_view path, const ApiError& error) {
    if (path.starts_with("/v1/messages")) return AnthropicError(error);
    return IsOllamaPath(path) ? OllamaError(error) : OpenAiError(error);
}

}  // namespace weft::serve
