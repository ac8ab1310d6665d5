// Writes text to standard error unchanged, in order with the log lines (log.h).
//
// One thread writes both (descriptor_writer.h). If the reader has stopped, the first caller waits
// at most 100 ms. After that, callers do not wait: texts are queued, and if the queue is full, they
// are dropped and counted.
// Thread: any, but not a signal handler.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// Waits until the text is written, unless the reader has stopped. urgent: may use the part of the
// queue that is reserved for final messages.
void WriteErr(std::string_view text, bool urgent = false);
// Queues the text; never waits.
void PostErr(std::string_view text);
// Called before the process ends. Waits until everything is written, but stops waiting when the
// reader reads nothing for `stall_ms`.
void FlushErr(int64_t stall_ms = 500);

}  // namespace weft
