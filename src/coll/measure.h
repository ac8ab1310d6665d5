// Measures one collective over one group at one size, and verifies its result.
//
// All ranks of the group call it with the same arguments; the group's first rank chooses the number
// of iterations. Before the timing, every rank verifies the result for known values. The time of a
// call is counted from the end of the previous call, so it includes all costs of the caller.
// Errors: those of the Comm, and the failure that `monitor` reports. Thread: the thread that uses
// the Comm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/timings.h"

namespace weft::coll {

struct Figures {
    Timings timings;     // of this rank's calls
    int64_t errors = 0;  // elements with a wrong value on this rank
};

// One measurement. bytes: size of the whole vector of floats, a multiple of WholeBytes(). choice:
// the wire type is used for all_reduce only; the algorithm is used for all_reduce, all_gather and
// reduce_scatter.
struct Question {
    Collective collective = Collective::kAllReduce;
    size_t bytes = 0;
    Choice choice;
};

// The number of bytes of which a size must be a multiple: one float, or one float per rank for
// collectives with parts.
size_t WholeBytes(Collective collective, int ranks);

// monitor: polled for a request to stop; may be null.
Result<Figures> Measure(Comm& comm, const Question& question, const Budget& budget,
                        const net::PeerMonitor* monitor);

}  // namespace weft::coll
