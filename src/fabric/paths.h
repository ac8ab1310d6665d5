// Finds paths between the hosts of a job that silently drop large packets (net/path_mtu.h).
//
// Rank 0 probes its own paths to the workers without their help (cluster/watch/path_fault.h). For
// the paths between workers, rank 0 starts a short job, {"kind": "paths"}, in which each rank
// listens on a port and probes the addresses of the other ranks that data links would use.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/job_kind.h"

namespace weft::fabric {

// Call on rank 0. Returns one text for each fault of a path between workers. Returns no texts if
// there are no faults, or the job cannot run. Takes a few seconds if a path drops packets.
std::vector<std::string> FindPathFaults(const cluster::ClusterOptions& options);

// Probes a worker's paths to the other workers.
extern const cluster::JobKind kPathsJob;

// Looks for path faults between any two hosts, if `error` is one that they can cause, and adds them
// to its message. Returns other errors unchanged.
Error WithPathFaults(Error error, const cluster::ClusterOptions& options);

}  // namespace weft::fabric
