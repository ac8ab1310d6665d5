// Probes: what this process can only find out by trying, as text.
//
//     hostname         this host's name
//     clock            nanoseconds since 1970, when it was asked
//     memlock          "soft BYTES hard BYTES" (or "unlimited"): the limit of this process
//     lock_memory      "locked BYTES", or "refused at BYTES: why": what mlock(2) really gave
//     register_memory/DEVICE  "registered BYTES" or "refused: why", with an RDMA device
//     access/PATH      "rw", or why /PATH can't be opened for reading and writing
//     measure/shm      "SIZE P50_US P99_US" a line: an exchange between two threads over shared
//     measure/tcp      memory or TCP on this host; with SIZE "all_reduce", of 8 KiB
//     cpus             processors that this process may use
//     reach            "ADDRESS PORT OUTCOME" a line: connections to the ports of other hosts, made
//                      while `weft doctor --hosts` ran (reach.h)
#pragma once

#include <string>

#include "doctor/host_view.h"

namespace weft::doctor {

// kAbsent for a name that is no probe.
Reading RunProbe(const std::string& name);

}  // namespace weft::doctor
