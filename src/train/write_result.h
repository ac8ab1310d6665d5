// Writes the result of a job and retries until it is safe on disk.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "train/export.h"
#include "train/trainer.h"

namespace weft::train {

// While rank 0 writes the result, the other ranks wait for its next request. Such a wait ends if no
// rank makes progress, but a slow disk may take longer. So the scope reports progress for as long
// as it exists.
class WritingScope {
  public:
    // cluster: rank 0's; outlives the scope. The destructor resets the cluster's progress.
    explicit WritingScope(cluster::Cluster& cluster);
    ~WritingScope();
    WritingScope(const WritingScope&) = delete;
    WritingScope& operator=(const WritingScope&) = delete;

  private:
    cluster::Cluster& cluster_;
};

// Writes the adapter if one was trained, otherwise the model, into words.folder; returns the path.
// Retries after a failure; if the disk lacks room for the result, removes all checkpoints but the
// newest. alone: no checkpoint holds the trained weights, so attempts continue until the result is
// written or a signal comes. Errors: the last attempt's.
Result<std::string> WriteResult(const model_files::ModelSource& trained,
                                const TrainerOptions& trainer, const TrainExportOptions& words,
                                bool alone);

}  // namespace weft::train
