// Measures the links between this machine and workers by messages and compares them with the usual
// figures for their kind. It needs a running `weft worker` on the other hosts.
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

// Starts the ranks, measures every pair (latency at kFabricSmall, bandwidth at kFabricLarge; half a
// second per pair) and judges the results. `here` supplies the cards and routes of this machine.
// Errors: those of a run over these workers.
Result<std::vector<Finding>> MeasureFabric(HostView& here, const cluster::ClusterOptions& options);

// Tests the path to every worker, then measures the idle workers as MeasureFabric does. A busy
// worker is left out with a note that names its job. A worker that large packets do not reach, or a
// failed measurement, is a failure.
std::vector<Finding> LookAtWorkers(HostView& here, cluster::ClusterOptions options);

// Returns a note if this host's worker, at the default port or a port of `options`, runs a rank of
// a job, because a measurement would slow that job. nullopt: it is idle, or there is no worker.
// Takes at most a second.
std::optional<Finding> NoteOwnJob(const HostView& here, const cluster::ClusterOptions& options);

// Judges measurements; one finding for each pair. workers: names of ranks 1, 2, ... as the user
// gave them. For an IPv4 address, its route gives the speed of the card.
std::vector<Finding> JudgeFabric(HostView& here, const std::vector<std::string>& workers,
                                 const fabric::NetReport& latency,
                                 const fabric::NetReport& bandwidth);

}  // namespace weft::doctor
