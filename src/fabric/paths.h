// Paths between the hosts of a job that silently drop large packets (net/path_mtu.h).
//
// Rank 0 probes its own paths to the workers alone (cluster/path_fault.h). Two workers probe the
// path between them: rank 0 starts a short job, {"kind": "paths"}, in which each rank listens on a
// port and probes the addresses that its data links use.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"

namespace weft::fabric {

// Rank 0: the faults of the paths between workers, one text each. Empty: no faults, or the job
// cannot run. Takes a few seconds if a path drops packets.
std::vector<std::string> FindPathFaults(const cluster::ClusterOptions& options);

// A worker probes its paths to the other workers.
extern const cluster::JobKind kPathsJob;

// Adds path faults between any two hosts, if any, to an error of a job over hosts. Returns other
// errors unchanged.
Error WithPathFaults(Error error, const cluster::ClusterOptions& options);

}  // namespace weft::fabric
