// Measures the links between ranks: what `weft net` does on all ranks.
//
// Rank 0 starts the ranks as for a model, with a NetJob in place of a Job. All ranks run the same
// list of measurements, and exchange results over the control connections after each one. Rank 0
// thus has every row as soon as it is measured, and ranks that do not take part in a measurement
// sleep. Errors: as Cluster. Thread: one caller.
#pragma once

#include <functional>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/job_kind.h"
#include "fabric/job.h"

namespace weft::fabric {

// Called on rank 0 after each row, with the numbers of finished rows and of all rows.
using NetProgress = std::function<void(size_t done, size_t all, const NetRow& row)>;

// Rank 0: starts the cluster, measures, and ends the cluster. Errors: kUsage: there is only one
// rank.
Result<NetReport> RunNet(cluster::ClusterOptions options, const NetJob& job,
                         const NetProgress& progress = nullptr);

// Runs the same measurements on a worker.
extern const cluster::JobKind kNetJob;

}  // namespace weft::fabric
