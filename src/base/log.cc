#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

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

// The one process-wide setting: where a process' own log lines go is a property of the process.
std::atomic<int> g_least{static_cast<int>(LeastOfEnvironment())};
std::atomic<int> g_rank{-1};

const char* Prefix(LogLevel level) {
    switch (level) {
        case LogLevel::kDebug: return "debug: ";
        case LogLevel::kInfo: return "";
        case LogLevel::kWarning: return "warning: ";
        case LogLevel::kError: return "error: ";
    }
    return "";
}

}  // namespace

void SetLogRank(int rank) {
    g_rank = rank;
}

void SetLogLevel(LogLevel least) {
    g_least = static_cast<int>(least);
}

bool LogEnabled(LogLevel level) {
    return static_cast<int>(level) >= g_least.load();
}

void LogLine(LogLevel level, std::string_view message) {
    const int rank = g_rank.load();
    std::string line = rank >= 0 ? fmt::format("[rank {}] {}{}\n", rank, Prefix(level), message)
                                 : fmt::format("weft: {}{}\n", Prefix(level), message);
    // A closed standard error is nobody's to mend here.
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace weft
