// Traces: op timings as a timeline in the Chrome trace event format, which Perfetto opens. The
// timeline shows each rank as a process with three tracks: compute, wait (for slower ranks), wire.
// Source: "Trace Event Format" (Google, 2016).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::engine {

// Appends the events of step `number` to `events`: JSON objects, separated by commas.
void AppendTrace(const program::Program& program, int64_t number,
                 std::span<const backend::OpTiming> timings, int rank, std::string& events);

// The first bytes of every such file.
inline constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";

// Joins the events of all ranks into the text of one file. Skips empty entries.
std::string TraceFile(const std::vector<std::string>& events_of_ranks);

}  // namespace weft::engine
