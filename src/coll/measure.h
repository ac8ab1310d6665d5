// Measures one collective over one group at one size, and verifies its result.
//
// All ranks of the group call it with the same arguments; the group's first rank chooses the number
// of iterations. Before the timing, every rank verifies the result for known values. A call's time
// runs from the end of the previous call, so it includes all costs of a caller.
// Errors: those of the Comm, and those of the monitor, which is polled. Thread: the Comm's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/timings.h"

namespace weft::coll {

struct Figures {
    Timings timings;     // on this rank
    int64_t errors = 0;  // elements with a wrong value on this rank
};

// One measurement. bytes: of the whole vector of floats, a multiple of WholeBytes. choice: the wire
// type counts for all_reduce only, the algorithm also for all_gather and reduce_scatter.
struct Question {
    Collective collective = Collective::kAllReduce;
    size_t bytes = 0;
    Choice choice;
};

// Granularity of sizes: one float, or one per rank for collectives with parts.
size_t WholeBytes(Collective collective, int ranks);

// monitor: may be null; polled for a request to stop.
Result<Figures> Measure(Comm& comm, const Question& question, const Budget& budget,
                        const net::PeerMonitor* monitor);

}  // namespace weft::coll
