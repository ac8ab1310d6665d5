// How much work this process has done: for the time before ops run (reading and tokenizing data,
// loading weights), in which ranks with slow disks or few cores may take hours longer than others.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/executable.h"
#include "cluster/cluster.h"

namespace weft::train {

// Grows while the process computes or reads files, and stays the same while it waits. Leaves
// out the calling thread, which is the one that sends heartbeats (Cluster::SetProgress).
int64_t ProcessWork();

// While it exists, `work` is part of the rank's progress: the rank reads or writes a checkpoint, or
// judges completions. (Ranks that wait for each other in ops may spin, so ops count alone
// otherwise.)
class WorkScope {
  public:
    // training: the executable whose progress counts; all arguments must outlive this object, and
    // `training` also the cluster's use of its progress.
    WorkScope(cluster::Cluster& cluster, const backend::Executable& training,
              std::function<int64_t()> work = ProcessWork);
    ~WorkScope();
    WorkScope(const WorkScope&) = delete;
    WorkScope& operator=(const WorkScope&) = delete;

  private:
    cluster::Cluster& cluster_;
    const backend::Executable& training_;
};

}  // namespace weft::train
