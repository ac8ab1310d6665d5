// A server of several models reads these parts of a request: the model, whether the answer is a
// stream, and how long the model stays loaded. This file also writes an error into a stream that
// has begun.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/api/fields.h"
#include "serve/http/message.h"

namespace weft::serve {

// The format of a streamed answer.
enum class StreamForm {
    kNone,       // a complete answer
    kOpenAi,     // server-sent events
    kLlama,      // llama-server's
    kAnthropic,  // with event names
    kResponses,  // of /v1/responses
    kLines,      // Ollama's lines of JSON
};
// Whether a stream of this form may have comments (server-sent events).
bool TakesComments(StreamForm form);
// `body`, an error's JSON of the same API, as the last event of a stream.
std::string ErrorEvent(StreamForm form, const std::string& body);

struct PoolAsk {
    std::string model;           // "": none
    bool names_nothing = false;  // the body has an empty name
    StreamForm form = StreamForm::kNone;
    std::optional<int64_t> keep_ms{};  // Ollama's keep_alive; negative: forever
    bool unloads = false;              // asks Ollama's API for nothing but to unload the model
};

// Reads the body, and for GET the query's "model". Error: 400.
std::optional<ApiError> ReadPoolAsk(const HttpRequest& request, PoolAsk& ask);

// Ollama's keep_alive: seconds, or a duration of Go ("5m", "1h30m", "-1s"); milliseconds. Negative:
// forever. nullopt: neither.
std::optional<int64_t> KeepAliveMs(const Json& value);

}  // namespace weft::serve
