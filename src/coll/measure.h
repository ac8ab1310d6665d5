// What one collective over one group costs at one size, and whether its data come out right.
//
// All ranks of the group call it with the same arguments; the group's first rank decides how often
// the call is repeated. Before anything is timed the result over known values is checked on every
// rank. A call's time counts from the end of the call before it, back to back, so that it holds
// whatever a caller pays.
// Errors: those of the Comm; the monitor's, asked now and then. Thread: the Comm's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/timings.h"

namespace weft::coll {

struct Figures {
    Timings timings;     // on this rank
    int64_t errors = 0;  // elements that came out wrong on this rank
};

// What to measure. bytes: of the whole vector of floats, a multiple of WholeBytes. choice: its wire
// counts for all_reduce only, its algorithm for all_gather and reduce_scatter, too.
struct Question {
    Collective collective = Collective::kAllReduce;
    size_t bytes = 0;
    Choice choice;
};

// What sizes must be a multiple of: one float, or one for each rank where ranks have parts.
size_t WholeBytes(Collective collective, int ranks);

// monitor: null, or asked whether to stop.
Result<Figures> Measure(Comm& comm, const Question& question, const Budget& budget,
                        const net::PeerMonitor* monitor);

}  // namespace weft::coll
