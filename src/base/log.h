// Log lines on standard error, prefixed with the rank once it is known:
//     [rank 1] loaded 61.2 MiB of weights in 0.31 s
// WEFT_LOG=debug|info|warning|error sets the lowest level that is printed (default: info).
// Thread: any. Each line is one write(2), so that lines of several ranks do not mix
// (standard_error.h states when they are written).
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace weft {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Called by the command line once the rank is known; -1: no prefix.
void SetLogRank(int rank);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view message);

// open: the terminal that shows log lines now shows an unfinished line (an answer, a prompt, a
// progress line). The next log line then begins on a new line, and after it no line is open.
void SetLineOpen(bool open);
// Whether a log line has broken the open line since the last call of TakeLineBroken or SetLineOpen.
bool TakeLineBroken();

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
