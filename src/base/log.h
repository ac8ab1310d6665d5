// Log lines on standard error, prefixed with the rank once it is known:
//     [rank 1] loaded 61.2 MiB of weights in 0.31 s
// Thread: any. One line is one write(2), so that lines of several ranks never mix.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace weft {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Set once at start-up by the command line; rank -1 prints no prefix.
void SetLog(LogLevel least, int rank);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view message);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
