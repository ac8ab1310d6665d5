// Writes text to standard error unchanged, in order with the log lines (log.h).
//
// One thread writes both (descriptor_writer.h). If the reader has stopped, a caller waits at most
// 100 ms, once; after that, texts are queued, and dropped and counted when the queue is full.
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
// Call before the process ends: waits until all is written; gives up when the reader takes nothing
// for `stall_ms`.
void FlushErr(int64_t stall_ms = 500);

}  // namespace weft
