// Paths between the hosts of a job that silently drop large packets (net/path_mtu.h).
//
// Rank 0 alone probes its own paths to the workers (cluster/path_fault.h). A path between two
// workers is probed by these two: rank 0 starts a short job, {"kind": "paths"}, in which each rank
// listens on a port and probes the addresses by which its data links reach the others.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"

namespace weft::fabric {

// Rank 0: the faults of the paths between workers, one text each; none where all are whole, or
// where the job cannot run. Takes a few seconds where a path drops packets.
std::vector<std::string> FindPathFaults(const cluster::ClusterOptions& options);

// A worker probes its paths to the other workers.
extern const cluster::JobKind kPathsJob;

// An error of a job over hosts, with what is wrong with the paths between any two of them, if
// anything is. Other errors come back as they are.
Error WithPathFaults(Error error, const cluster::ClusterOptions& options);

}  // namespace weft::fabric
