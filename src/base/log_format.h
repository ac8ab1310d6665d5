// How log lines look (log.h): text, or a JSON object a line, for programs that gather them:
//     {"time":"2026-01-31T12:00:00.123Z","level":"warning","rank":1,"message":"..."}
// WEFT_LOG_FORMAT=json in the environment sets it, too (ranks that a server starts have it so).
// A property of the process, as where the lines go. Thread: any.
#pragma once

#include <string>

namespace weft {

void SetLogJson(bool json);
bool LogIsJson();
// The clock's time of now, UTC: "2026-01-31T12:00:00.123Z".
std::string UtcNow();

}  // namespace weft
