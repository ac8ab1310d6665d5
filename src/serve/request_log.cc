#include "serve/request_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log_format.h"
#include "base/standard_error.h"

namespace weft::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTextBytes = 2000;
constexpr std::array<std::string_view, 7> kProbes = {
    "/live", "/health", "/healthz", "/v1/health", "/ready", "/metrics", "/api/status"};

// A probe that was answered, including by 503, or whose client disconnected.
bool IsProbeTarget(const HttpRecord& record) {
    return (record.method == "GET" || record.method == "HEAD") &&
           (record.status < 400 || record.status == 503) &&
           std::ranges::find(kProbes, record.path) != kProbes.end();
}

bool IsQuiet(const HttpRecord& record) {
    if (IsProbeTarget(record)) return true;
    if (record.status >= 400 || record.gone || !record.note.error.empty()) return false;
    if (record.method == "OPTIONS") return true;
    if (record.method != "GET" && record.method != "HEAD") return false;
    const std::string& path = record.path;
    return path == "/" || path == "/openapi.json" || path.starts_with("/assets/");
}

bool IsError(const HttpRecord& record) {
    if (IsProbeTarget(record)) return false;
    if (record.status == 408 || record.status == 429 || record.status >= 500) return true;
    return record.status < 400 && !record.note.error.empty();
}

double Milliseconds(double seconds) {
    return std::round(seconds * 1e4) * 0.1;
}

std::string Cut(const std::string& text) {
    return text.size() <= kMostTextBytes ? text : text.substr(0, kMostTextBytes) + "...";
}

// A plain word stays as it is; an empty value, spaces or quotes require quotes.
std::string ValueText(const Json& value) {
    if (!value.is_string()) {
        if (!value.is_number_float()) return value.dump();
        return fmt::format("{:.1f}", value.get<double>());
    }
    const auto& text = value.get_ref<const std::string&>();
    const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
        return c > ' ' && c < '\x7f' && c != '"' && c != '=' && c != '\\';
    });
    return plain ? text : value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

const char* Level(const HttpRecord& record) {
    if (record.status >= 500) return "error";
    return IsError(record) || record.status >= 400 ? "warning" : "info";
}

}  // namespace

std::string RequestLine(const HttpRecord& record, const std::string& time, bool json) {
    const RequestNote& note = record.note;
    Json line{{"time", time}};
    const auto add = [&](const char* name, const auto& value, bool there) {
        if (there) line[name] = value;
    };
    add("level", Level(record), json);
    add("message", "request", json);
    line["peer"] = record.peer;
    line["id"] = record.id;
    add("key", note.key, !note.key.empty());
    add("method", Cut(record.method), !record.method.empty());
    add("path", Cut(record.path), !record.path.empty());
    add("status", record.status, record.status != 0);
    add("prompt", note.prompt_tokens, note.prompt_tokens >= 0);
    add("cached", note.cached_tokens, note.prompt_tokens >= 0);
    add("generated", note.generated_tokens, note.prompt_tokens >= 0);
    add("queue_ms", Milliseconds(note.queue_s), note.queue_s >= 0);
    add("first_token_ms", Milliseconds(note.first_token_s), note.first_token_s >= 0);
    line["total_ms"] = Milliseconds(record.seconds);
    line["bytes"] = record.sent_bytes;
    add("left_out", Cut(note.left_out), !note.left_out.empty());
    add("gone", true, record.gone);
    add("error", Cut(note.error), !note.error.empty());
    if (json) return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::string text = "weft:";
    for (const auto& [name, value] : line.items())
        text += fmt::format(" {}={}", name, ValueText(value));
    return text + "\n";
}

void RequestLog::Add(const HttpRecord& record) {
    if (record.note.passed_on && record.note.error.empty()) return;
    const bool error = IsError(record), line = write_ && !IsQuiet(record);
    if (!error && !line) return;
    if (line) PostErr(RequestLine(record, UtcNow(), LogIsJson()));
    if (!error) return;
    const std::string words = record.note.error.empty()
                                  ? fmt::format("answered with status {}", record.status)
                                  : record.note.error;
    const std::lock_guard lock(mutex_);
    errors_.push_back({std::time(nullptr), record.status, record.id, Cut(record.method),
                       Cut(record.path), Cut(words), record.note.key});
    if (errors_.size() > kMostErrors) errors_.pop_front();
}

std::vector<RequestError> RequestLog::errors() const {
    const std::lock_guard lock(mutex_);
    return {errors_.begin(), errors_.end()};
}

}  // namespace weft::serve
