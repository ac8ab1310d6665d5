#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/descriptor_writer.h"
#include "base/log_format.h"
#include "base/printable.h"
#include "base/standard_error.h"

namespace weft {
namespace {

LogLevel LeastOfEnvironment() {
    const char* text = std::getenv("WEFT_LOG");
    const std::string_view word = text == nullptr ? "" : text;
    if (word == "debug") return LogLevel::kDebug;
    if (word == "warning") return LogLevel::kWarning;
    if (word == "error") return LogLevel::kError;
    return LogLevel::kInfo;
}

bool JsonOfEnvironment() {
    const char* text = std::getenv("WEFT_LOG_FORMAT");
    return text != nullptr && std::string_view(text) == "json";
}

// Process-wide state: the destination of log lines is a property of the process.
const LogLevel g_least = LeastOfEnvironment();
std::atomic<int> g_rank{-1};
std::atomic<bool> g_json{JsonOfEnvironment()};
std::atomic<bool> g_line_open{false};
std::atomic<bool> g_line_broken{false};

const char* Prefix(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug: return "debug: ";
        case LogLevel::kInfo: return "";
        case LogLevel::kWarning: return "warning: ";
        case LogLevel::kError: return "error: ";
    }
    return "";
}

const char* Name(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug: return "debug";
        case LogLevel::kInfo: return "info";
        case LogLevel::kWarning: return "warning";
        case LogLevel::kError: return "error";
    }
    return "";
}

std::string JsonLine(LogLevel level, int rank, std::string_view message) {
    using Json = nlohmann::ordered_json;
    Json json{{"time", UtcNow()}, {"level", Name(level)}};
    if (rank >= 0) json["rank"] = rank;
    json["message"] = message;
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string LineOf(LogLevel level, std::string_view message) {
    const int rank = g_rank.load();
    if (g_json) return JsonLine(level, rank, message);
    const std::string shown = PrintableLines(message);
    return rank >= 0 ? fmt::format("[rank {}] {}{}\n", rank, Prefix(level), shown)
                     : fmt::format("weft: {}{}\n", Prefix(level), shown);
}

std::string DroppedLine(uint64_t count) {
    return LineOf(LogLevel::kWarning,
                  fmt::format("dropped {} log line{}: nobody read standard error", count,
                              count == 1 ? "" : "s"));
}

constinit DescriptorWriter g_writer(STDERR_FILENO, DroppedLine);

}  // namespace

void SetLogJson(bool json) {
    g_json = json;
}

bool LogIsJson() {
    return g_json;
}

std::string UtcNow() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    const time_t seconds = ms / 1000;
    tm parts{};
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       ms % 1000);
}

void SetLogRank(int rank) {
    g_rank = rank;
}

bool LogEnabled(LogLevel level) {
    return level >= g_least;
}

void SetLineOpen(bool open) {
    g_line_broken = false;
    g_line_open = open;
}

bool TakeLineBroken() {
    return g_line_broken.exchange(false);
}

void LogLine(LogLevel level, std::string_view message) {
    std::string line = LineOf(level, message);
    if (g_line_open.exchange(false)) {
        line.insert(0, 1, '\n');
        g_line_broken = true;
    }
    WriteErr(line, level == LogLevel::kError);
}

void WriteErr(std::string_view text, bool urgent) {
    using Priority = DescriptorWriter::Priority;
    g_writer.Write(text, urgent ? Priority::kUrgent : Priority::kNormal);
}

void PostErr(std::string_view text) {
    g_writer.Post(text);
}

void FlushErr(int64_t stall_ms) {
    g_writer.Flush(stall_ms);
}

}  // namespace weft
