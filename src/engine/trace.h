// Traces: op timings as a timeline in the Chrome trace event format, which Perfetto opens. One
// process per rank with three tracks: compute, wait (for the slower rank), wire. Source of the
// format: "Trace Event Format" (Google, 2016).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::engine {

// Appends the events of step `number` to `events`: JSON objects, separated by commas.
void AppendTrace(const program::Program& program, int64_t number,
                 std::span<const backend::OpTiming> timings, int rank, std::string& events);

// Joins the events of all ranks to the text of one file; skips empty entries.
std::string TraceFile(const std::vector<std::string>& events_of_ranks);

}  // namespace weft::engine
