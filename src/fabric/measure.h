// Measuring the fabric: `weft net`'s work on all ranks.
//
// Rank 0 starts the ranks as for a model, with a NetJob in place of a Job; all ranks walk through
// the same plan of measurements, and after each of them exchange what they saw over the control
// plane, so that rank 0 has every row as it comes and ranks that are not concerned sleep.
// Errors: as of any run, worded by the cluster.
// Thread: one caller.
#pragma once

#include <functional>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"
#include "fabric/job.h"

namespace weft::fabric {

// Called on rank 0 after each row: how many of how many are done.
using NetProgress = std::function<void(size_t done, size_t all, const NetRow& row)>;

// Rank 0: starts the cluster, measures, ends it. Errors: kUsage with a single rank.
Result<NetReport> RunNet(cluster::ClusterOptions options, const NetJob& job,
                         const NetProgress& progress = nullptr);

// A worker makes the same measurements.
extern const cluster::JobKind kNetJob;

}  // namespace weft::fabric
