// The autotuner measures a group and fills its Tuning.
//
// All ranks of the group call the same function at the same time. The group's first rank measures,
// decides and sends the result over the group, so all ranks have the same table. For two ranks the
// choice changes no bits. For more ranks, algorithms add in different orders (coll/comm.h), so
// another table may round a sum differently. To make that rare, an algorithm replaces the built-in
// choice only if it is clearly faster. The autotuner never chooses a lossy wire type.
// Thread: the thread that uses the Comm. Errors: those of the Comm, and the failure that the
// monitor (TuneOptions::monitor) reports.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/tuning.h"

namespace weft::coll {

// Time limit of MeasureTuning in seconds. MeasureTuning can take longer if a single all_reduce call
// takes more than a tenth of the limit. It measures inconsistent times again, for up to twice the
// limit in all.
inline constexpr double kTuneS = 0.2;

struct TuneOptions {
    double seconds = kTuneS;
    bool several_hosts = false;  // the ranks are on several hosts, and some hosts have several of
                                 // them: try all algorithms
    const net::PeerMonitor* monitor = nullptr;  // may be null
};

// Times all_reduce with each of AlgorithmsFor, at sizes from 256 bytes to 4 MiB within the time
// limit. For larger sizes, it chooses by a model that predicts the algorithms' times (choose.h);
// the model's link parameters are fitted to those measurements. If the links are of two kinds, or
// too few sizes were measured, larger sizes keep the algorithm of comm.tuning(). The other
// collectives keep their algorithms, too. The returned rows have the measured times, changed so
// that they never fall as sizes grow (coll/time_table.h).
Result<Tuning> MeasureTuning(Comm& comm, const TuneOptions& options);

// A series of all_reduces as in decode steps: before each, every rank computes.
struct SeriesOptions {
    size_t bytes = 0;                   // of an all_reduce
    std::function<Status()> compute{};  // what a step computes between two all_reduces; may be null
    double seconds = 0.3;
    const net::PeerMonitor* monitor = nullptr;  // may be null
};
// Microseconds of an all_reduce, on the first rank, without its wait for ranks that computed for
// longer: a slow host is no fault of the network. A step waits for all of its all_reduces, so the
// mean counts, which on a jittery link is far above the median. error_us: the mean's standard
// error. slowest: the rank that computed for the longest time, slowest_us on average; fastest_us:
// the shortest average of a rank.
struct SeriesUs {
    double mean_us = 0, error_us = 0;
    int slowest = 0;
    double slowest_us = 0, fastest_us = 0;
};
// Repeats all_reduce with the algorithm of comm.tuning() for about options.seconds, or 8 calls.
Result<SeriesUs> MeasureSeries(Comm& comm, const SeriesOptions& options);

// Whether the times in a table are still right: measures two of its sizes again (in a few
// milliseconds) and returns true if neither time differs from the table by more than a factor of
// kStaleFactor. True for a table without times.
inline constexpr double kStaleFactor = 3;
Result<bool> TuningHolds(Comm& comm, const Tuning& tuning, const net::PeerMonitor* monitor);

}  // namespace weft::coll
