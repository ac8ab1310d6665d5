// How much work this process has done: for the time before ops run (reading and tokenizing data,
// loading weights, summing files), during which ranks with slow disks or few cores may take hours
// longer than others.
#pragma once

#include <cstdint>

namespace weft {

// Grows while the process computes or reads files, and stays the same while it waits. Leaves
// out the calling thread, which is the one that sends heartbeats (Cluster::SetProgress).
int64_t ProcessWork();

}  // namespace weft
