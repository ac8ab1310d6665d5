// Measures the fabric: the work of `weft net` on all ranks.
//
// Rank 0 starts the ranks as for a model, with a NetJob in place of a Job. All ranks run the same
// plan of measurements, and after each one exchange results over the control plane. Rank 0 thus has
// every row at once, and ranks that take no part sleep.
// Errors: those of any job of a cluster. Thread: one caller.
#pragma once

#include <functional>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/job_kind.h"
#include "fabric/job.h"

namespace weft::fabric {

// Called on rank 0 after each row, with the number of finished rows and of all rows.
using NetProgress = std::function<void(size_t done, size_t all, const NetRow& row)>;

// Rank 0: starts the cluster, measures, ends it. Errors: kUsage: a single rank.
Result<NetReport> RunNet(cluster::ClusterOptions options, const NetJob& job,
                         const NetProgress& progress = nullptr);

// A worker's part: the same measurements.
extern const cluster::JobKind kNetJob;

}  // namespace weft::fabric
