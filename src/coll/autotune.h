// The autotuner: measures a group and fills its Tuning.
//
// All ranks of the group call the same function at the same time; the first rank of the group
// measures, decides and tells the others over the group itself, so that all hold the same table.
// What is chosen changes no bits for two ranks; for more ranks algorithms add in different orders
// (coll/comm.h), so a table that came out differently may round a sum differently. To keep that
// rare, an algorithm must beat the built-in choice clearly to replace it.
// Wire types that lose something are never chosen here.
// Thread: the Comm's. Errors: those of the Comm; the monitor's.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "coll/comm.h"
#include "coll/tuning.h"

namespace weft::coll {

// At most so long does MeasureTuning take where a call takes less than a tenth of it; at most twice
// that where times do not fit together and are measured again.
inline constexpr double kTuneS = 0.2;

struct TuneOptions {
    double seconds = kTuneS;
    bool several_hosts = false;  // with more than one rank on some of them: try all algorithms
    const net::PeerMonitor* monitor = nullptr;  // may be null
};

// Times all_reduce by each of AlgorithmsFor at sizes from 256 bytes to 4 MiB, as far as the time
// goes. Larger ones are chosen by the model of the algorithms' seconds over links as those sizes
// show them (choose.h); where links are of two kinds, or too little was measured, they keep the
// choice of comm.tuning(), as do the other collectives, as it is once the group knows its hosts.
// Rows have the times measured, which do not fall as sizes grow (coll/time_table.h).
Result<Tuning> MeasureTuning(Comm& comm, const TuneOptions& options);

// Whether the times of a table still hold: two of its sizes are measured again (a few
// milliseconds) and must not be off by more than kStaleFactor. A table without times holds.
inline constexpr double kStaleFactor = 3;
Result<bool> TuningHolds(Comm& comm, const Tuning& tuning, const net::PeerMonitor* monitor);

}  // namespace weft::coll
