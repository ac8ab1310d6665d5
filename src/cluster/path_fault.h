// Paths between hosts that lose large packets (net/path_mtu.h), in words for a user.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"

namespace weft::cluster {

// What is wrong with the way to a worker that listens at `address` ("HOST:PORT"), who is called
// `name`: which packets arrive and which do not, both ends' MTU, and what to do. "": whole packets
// arrive, or nothing can be said. Takes up to four seconds where something is wrong.
std::string PathFaultTo(const std::string& name, const std::string& address);

// An error of a job over hosts (kPeerLost, kTimeout or kIo), with what is wrong with the ways to
// them, if anything is. Other errors come back as they are.
Error WithPathFaults(Error error, const ClusterOptions& options);

}  // namespace weft::cluster
