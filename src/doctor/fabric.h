// Measures latency and bandwidth of the links between this machine and workers, and compares them
// with figures that are usual for the kind of link. A `weft worker` must run on each of the other
// hosts.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"
#include "fabric/job.h"

namespace weft::doctor {

inline constexpr int64_t kFabricSmall = 8 << 10;  // bytes of a latency message
inline constexpr int64_t kFabricLarge = 1 << 20;  // bytes of a bandwidth transfer

// Starts ranks on the workers, measures the link between every two ranks (latency at kFabricSmall,
// bandwidth at kFabricLarge; half a second each) and judges the results. here: this machine, for
// its cards and routes. Errors: those of a job on these workers.
Result<std::vector<Finding>> MeasureFabric(HostView& here, const cluster::ClusterOptions& options);

// Tests the path to every worker, then measures the idle workers as MeasureFabric does. A busy
// worker is skipped, with a note that names its job. If large packets do not reach a worker, or a
// measurement fails, the finding has the severity `fail`. apart: workers may have no links between
// each other (a ring of cables), so only links from this machine are measured, one at a time.
std::vector<Finding> LookAtWorkers(HostView& here, cluster::ClusterOptions options,
                                   bool apart = false);

// Returns a note if a worker on this host, at the default port or a port in `options`, runs a rank
// of a job. A measurement would slow that job. nullopt: no worker runs on this host, or the
// worker is idle. Takes at most a second.
std::optional<Finding> NoteOwnJob(const HostView& here, const cluster::ClusterOptions& options);

// Judges measurements: returns one finding for each pair of ranks. workers: the names of ranks 1,
// 2, ... as the user gave them. If a name is an IPv4 address, the route to it determines the card
// that is used, and its speed.
std::vector<Finding> JudgeFabric(HostView& here, const std::vector<std::string>& workers,
                                 const fabric::NetReport& latency,
                                 const fabric::NetReport& bandwidth);

}  // namespace weft::doctor
