#include "serve/pool/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "serve/api/anthropic/messages.h"
#include "serve/api/dialect.h"
#include "serve/api/llama/slots.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/ollama/ollama_dialect.h"
#include "serve/pool/schedule.h"

namespace weft::serve {
namespace {

constexpr double kMostSeconds = 1e9;
constexpr const char* kKeepAlive = "keep_alive";

StreamForm FormOf(std::string_view path) {
    if (path == "/v1/chat/completions" || path == "/chat/completions" ||
        path == "/v1/completions" || path == "/completions") {
        return StreamForm::kOpenAi;
    }
    if (path == "/completion" || path == "/infill") return StreamForm::kLlama;
    if (path == "/v1/messages") return StreamForm::kAnthropic;
    if (path == "/v1/responses") return StreamForm::kResponses;
    if (path == "/api/chat" || path == "/api/generate") return StreamForm::kLines;
    return StreamForm::kNone;
}

bool IsTrue(const Json& body, const char* name, bool otherwise) {
    const auto found = body.find(name);
    return found == body.end() || !found->is_boolean() ? otherwise : found->get<bool>();
}

std::string TextOf(const Json& body, const char* name) {
    const auto found = body.find(name);
    return found == body.end() || !found->is_string() ? "" : found->get<std::string>();
}

bool IsAbsent(const Json& body, const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() || found->empty() || *found == "";
}

// The value of "model" in a query, decoded; "": none.
std::string ModelInQuery(std::string_view query) {
    constexpr std::string_view kName = "model=";
    for (std::string_view rest = query; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find('&'));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
        if (!part.starts_with(kName)) continue;
        std::string value;
        const std::string_view coded = part.substr(kName.size());
        for (size_t i = 0; i < coded.size(); ++i) {
            unsigned byte = 0;
            const char* digits = coded.data() + i + 1;
            if (coded[i] == '%' && i + 2 < coded.size() &&
                std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
                value += static_cast<char>(byte);
                i += 2;
            } else {
                value += coded[i] == '+' ? ' ' : coded[i];
            }
        }
        return value;
    }
    return "";
}

// Seconds of one unit of Go's durations; 0: no unit.
double UnitSeconds(std::string_view unit) {
    if (unit == "h") return 3600;
    if (unit == "m") return 60;
    if (unit == "s") return 1;
    if (unit == "ms") return 1e-3;
    if (unit == "us") return 1e-6;
    if (unit == "ns") return 1e-9;
    return 0;
}

std::optional<double> GoSeconds(std::string_view text) {
    const bool minus = text.starts_with('-');
    if (minus || text.starts_with('+')) text.remove_prefix(1);
    if (text == "0") return 0;
    double seconds = 0;
    if (text.empty()) return {};
    while (!text.empty()) {
        double count = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count,
                                                  std::chars_format::fixed);
        if (error != std::errc() || !(count >= 0)) return {};
        text.remove_prefix(static_cast<size_t>(end - text.data()));
        const std::string_view unit =
            text.substr(0, std::min(text.find_first_not_of("hmsnu"), text.size()));
        const double each = UnitSeconds(unit);
        if (each == 0) return {};
        text.remove_prefix(unit.size());
        seconds += count * each;
    }
    return minus ? -seconds : seconds;
}

}  // namespace

const char* TypeOf(StreamForm form) {
    return form == StreamForm::kLines ? "application/x-ndjson" : "text/event-stream; charset=utf-8";
}

std::string WaitComment(StreamForm form, const std::string& why) {
    if (form == StreamForm::kNone || form == StreamForm::kLines) return "";
    return fmt::format(": {}\n\n", why);
}

std::string WaitEvent(const PoolRequest& ask, bool chat) {
    if (ask.form == StreamForm::kLines) return OllamaWaiting({.chat = chat, .model = ask.model});
    return ask.form == StreamForm::kAnthropic ? AnthropicPing() : "";
}

std::string ErrorEvent(StreamForm form, const std::string& body) {
    switch (form) {
        case StreamForm::kNone: return "";
        case StreamForm::kOpenAi: return fmt::format("data: {}\n\ndata: [DONE]\n\n", body);
        case StreamForm::kLlama: return fmt::format("error: {}\n\n", body);
        case StreamForm::kAnthropic: return fmt::format("event: error\ndata: {}\n\n", body);
        case StreamForm::kResponses: {
            const Json parsed = OrderedJsonOrDiscarded(body);
            Json event{{"type", "error"}, {"sequence_number", 0}};
            if (parsed.is_object() && parsed.contains("error")) {
                event["code"] = parsed["error"].value("code", Json());
                event["message"] = parsed["error"].value("message", Json());
                event["param"] = parsed["error"].value("param", Json());
            }
            return fmt::format("event: error\ndata: {}\n\n", Dump(event));
        }
        case StreamForm::kLines: return body + "\n";
    }
    return "";
}

std::optional<int64_t> KeepAliveMs(const Json& value) {
    std::optional<double> seconds;
    if (value.is_number()) seconds = value.get<double>();
    if (value.is_string()) seconds = GoSeconds(value.get_ref<const std::string&>());
    if (!seconds || std::isnan(*seconds)) return {};
    if (*seconds < 0) return PoolLimits::kForever;
    return std::llround(std::min(*seconds, kMostSeconds) * 1000);
}

std::optional<ApiError> ReadPoolRequest(const HttpRequest& request, PoolRequest& ask) {
    if (request.method != "POST") {
        ask.model = ModelInQuery(request.query);
        return {};
    }
    // An action on a slot may have no body; the query then names the model.
    const bool bare = request.body.empty() && SlotOfPath(request.path);
    Json body = Json::object();
    if (!bare) {
        if (auto error = ParseBody(request.body, body)) return error;
    }
    ask.model = bare ? ModelInQuery(request.query) : TextOf(body, "model");
    ask.names_nothing = ask.model.empty() && body.contains("model") && body["model"].is_string();
    const StreamForm form = FormOf(request.path);
    if (IsTrue(body, "stream", form == StreamForm::kLines)) ask.form = form;
    if (!IsOllamaPath(request.path)) return {};
    if (ask.model.empty()) ask.model = TextOf(body, "name");
    if (ask.model.empty()) return ApiError{400, "model is required", "model", "missing"};
    if (body.contains(kKeepAlive) && !body[kKeepAlive].is_null()) {
        ask.keep_ms = KeepAliveMs(body[kKeepAlive]);
        if (!ask.keep_ms) {
            return ApiError{400,
                            "keep_alive is not a duration: expected seconds, or text such as 5m",
                            kKeepAlive, "invalid_value"};
        }
    }
    const bool nothing = IsAbsent(body, "prompt") && IsAbsent(body, "messages") &&
                         IsAbsent(body, "suffix") && form == StreamForm::kLines;
    ask.unloads = nothing && ask.keep_ms == 0;
    return {};
}

}  // namespace weft::serve
