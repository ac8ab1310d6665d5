// A rank's work outside its ops, as a part of its progress.
#pragma once

#include <functional>

#include "backend/executable.h"
#include "base/process_work.h"
#include "cluster/cluster.h"

namespace weft::train {

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
