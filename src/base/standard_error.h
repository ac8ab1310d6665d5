// Text for standard error as it is, in order with the log lines (log.h).
//
// A thread of its own writes both (descriptor_writer.h). A reader that has stopped delays a caller
// by at most 100 ms, once; then texts are queued, and dropped and counted where the queue is full.
// Thread: any, but no signal handler.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// Waits until the text is written, unless the reader has stopped. urgent: may use the room that the
// queue keeps for last words.
void WriteErr(std::string_view text, bool urgent = false);
// Never waits.
void PostErr(std::string_view text);
// Before a process ends: waits until all is written, unless the reader takes nothing for so long.
void FlushErr(int64_t stall_ms = 500);

}  // namespace weft
