// Format of log lines (log.h): text, or one JSON object per line for log collectors:
//     {"time":"2026-01-31T12:00:00.123Z","level":"warning","rank":1,"message":"..."}
// WEFT_LOG_FORMAT=json in the environment has the same effect; a server sets it for its ranks. The
// setting is for the whole process. Thread: any.
#pragma once

#include <string>

namespace weft {

void SetLogJson(bool json);
bool LogIsJson();
// The current time, UTC: "2026-01-31T12:00:00.123Z".
std::string UtcNow();

}  // namespace weft
