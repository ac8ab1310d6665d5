// Probes: facts that this process finds by a trial, as text.
//
//     hostname         this host's name
//     clock            nanoseconds since 1970 at the time of the call
//     memlock          "soft BYTES hard BYTES" (or "unlimited"): the limit of this process
//     lock_memory      "locked BYTES", or "refused at BYTES: why": result of mlock(2)
//     register_memory/DEVICE  "registered BYTES" or "refused: why": result for an RDMA device
//     access/PATH      "rw", or the reason why /PATH can't be opened for reading and writing
//     measure/shm      lines "OP BYTES P50_US P99_US" of two threads over shared memory or TCP; OP
//     measure/tcp      is "one_way" or "all_reduce". Takes a fifth of a second on two cores
//     cpus             processors that this process may use
//     reach            lines "ADDRESS PORT OUTCOME": connections to ports of other hosts, made
//                      while `weft doctor --hosts` ran (reach.h)
#pragma once

#include <string>

#include "doctor/host_view.h"

namespace weft::doctor {

// kAbsent: no such probe.
Reading RunProbe(const std::string& name);

}  // namespace weft::doctor
