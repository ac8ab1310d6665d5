// What the links between this machine and workers do, measured message by message, against what
// links of their kind give: the last look, where `weft worker` runs on the other hosts.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"
#include "fabric/job.h"

namespace weft::doctor {

inline constexpr int64_t kFabricSmall = 8 << 10;  // bytes of a sync
inline constexpr int64_t kFabricLarge = 1 << 20;  // of a transfer

// Starts the ranks, measures every pair (latency at kFabricSmall, bandwidth at kFabricLarge; half a
// second a pair) and judges. `here` knows the cards and routes of this machine. Errors: as of any
// run over these workers, worded by the cluster.
Result<std::vector<Finding>> MeasureFabric(HostView& here, const cluster::ClusterOptions& options);

// Looks at the way to every worker, then measures those that are idle, as MeasureFabric does. A
// worker that runs another job is noted with that job and left out; one that large packets don't
// reach, and a measurement that fails, are failures.
std::vector<Finding> LookAtWorkers(HostView& here, cluster::ClusterOptions options);

// A note where the worker of this host, at the usual port or one that `options` has for others,
// runs a rank of a job: a measurement would slow that job. nullopt: it is idle, or there is none.
// Takes a second at most.
std::optional<Finding> NoteOwnJob(const HostView& here, const cluster::ClusterOptions& options);

// The judgement alone. workers: as the user named those of ranks 1, 2, ...; where one is an IPv4
// address, its route says how fast the card is. One finding for each pair.
std::vector<Finding> JudgeFabric(HostView& here, const std::vector<std::string>& workers,
                                 const fabric::NetReport& latency,
                                 const fabric::NetReport& bandwidth);

}  // namespace weft::doctor
