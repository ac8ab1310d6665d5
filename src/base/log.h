// Log lines on standard error, prefixed with the rank once it is known:
//     [rank 1] loaded 61.2 MiB of weights in 0.31 s
// WEFT_LOG=debug|info|warning|error sets the least level that is printed; info without.
// Thread: any. One line is one write(2): those of ranks never mix (standard_error.h says when).
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace weft {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Set by the command line, once the rank is known; -1 prints no prefix.
void SetLogRank(int rank);
// Tests: another level than the environment's.
void SetLogLevel(LogLevel least);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view message);

// An answer, a prompt or a progress line stands unfinished on the terminal that log lines go to:
// the next of them begins on a line of its own. Off again with that.
void SetLineOpen(bool open);
// Whether that has happened since the last call, or the last SetLineOpen.
bool TakeLineBroken();

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft
