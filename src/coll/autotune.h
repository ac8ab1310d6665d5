// The autotuner measures a group and fills its Tuning.
//
// All ranks of the group call the same function at the same time. The group's first rank measures,
// decides and sends the result over the group, so all ranks have the same table. For two ranks the
// choice changes no bits. For more ranks, algorithms add in different orders (coll/comm.h), so
// another table may round a sum differently. To make that rare, an algorithm replaces the built-in
// choice only if it is clearly faster. The autotuner never chooses a lossy wire type.
// Thread: the Comm's. Errors: those of the Comm; the monitor's.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/tuning.h"

namespace weft::coll {

// Time limit of MeasureTuning, if one call takes less than a tenth of it. Measuring inconsistent
// times again may double the time.
inline constexpr double kTuneS = 0.2;

struct TuneOptions {
    double seconds = kTuneS;
    bool several_hosts = false;  // some of them with several ranks: try all algorithms
    const net::PeerMonitor* monitor = nullptr;  // may be null
};

// Times all_reduce with each of AlgorithmsFor, at sizes from 256 bytes to 4 MiB within the time
// limit. For larger sizes, chooses by the model of the algorithms' times over links fitted to those
// measurements (choose.h). If the links are of two kinds, or too few sizes were measured, larger
// sizes keep the choice of comm.tuning(), as do the other collectives. Rows have the measured
// times, made monotonic in the size (coll/time_table.h).
Result<Tuning> MeasureTuning(Comm& comm, const TuneOptions& options);

// Whether a table's times still hold: two of its sizes, measured again (a few milliseconds), must
// not differ from the table by more than kStaleFactor. True for a table without times.
inline constexpr double kStaleFactor = 3;
Result<bool> TuningHolds(Comm& comm, const Tuning& tuning, const net::PeerMonitor* monitor);

}  // namespace weft::coll
