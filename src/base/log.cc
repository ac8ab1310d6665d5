#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

namespace weft {
namespace {

// The one process-wide setting: where a process' own log lines go is a property of the process.
std::atomic<int> g_least{static_cast<int>(LogLevel::kInfo)};
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

void SetLog(LogLevel least, int rank) {
    g_least = static_cast<int>(least);
    g_rank = rank;
}

bool LogEnabled(LogLevel level) { return static_cast<int>(level) >= g_least.load(); }

void LogLine(LogLevel level, std::string_view message) {
    const int rank = g_rank.load();
    std::string line = rank >= 0 ? fmt::format("[rank {}] {}{}\n", rank, Prefix(level), message)
                                 : fmt::format("weft: {}{}\n", Prefix(level), message);
    // A closed standard error is nobody's to mend here.
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace weft
