// The parts of a request that a server of several models reads: the model, the form of a streamed
// answer, and how long the model stays loaded. Also: an error as the last event of a stream.
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
    kOpenAi,     // server-sent events of the OpenAI API
    kLlama,      // llama-server's
    kAnthropic,  // server-sent events with names
    kResponses,  // of /v1/responses
    kLines,      // Ollama's lines of JSON
};
// Content-Type of a stream of this form.
const char* TypeOf(StreamForm form);
// `body`, an error's JSON of the same API, as the last event of a stream.
std::string ErrorEvent(StreamForm form, const std::string& body);

struct PoolRequest {
    std::string model;           // "": none
    bool names_nothing = false;  // the body has an empty name
    StreamForm form = StreamForm::kNone;
    std::optional<int64_t> keep_ms{};  // Ollama's keep_alive; negative: forever
    bool unloads = false;              // the only purpose is to unload the model (Ollama)
};

// The comment that a waiting stream sends each second; "": its form has no comments. why: the
// reason for clients, such as "loading big (3 s)".
std::string WaitComment(StreamForm form, const std::string& why);
// A part without content for the same stream, which resets also the time limits of clients that
// drop comments; "": nothing. (Nothing may come before the first event of OpenAI's APIs, which
// names the answer.)
std::string WaitEvent(const PoolRequest& ask, bool chat);

// Reads the body, and for GET, and for an action on a slot without a body, the query's "model".
// Error: 400.
std::optional<ApiError> ReadPoolRequest(const HttpRequest& request, PoolRequest& ask);

// The milliseconds of Ollama's keep_alive, which is a number of seconds or a duration of Go ("5m",
// "1h30m", "-1s"). Negative: forever. nullopt: the value is neither.
std::optional<int64_t> KeepAliveMs(const Json& value);

}  // namespace weft::serve
