// What a job was for, written where nothing that passes may lose it.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "model_files/model_file.h"
#include "train/export.h"
#include "train/trainer.h"

namespace weft::train {

// While rank 0 writes the result, the others wait for what it asks them for next. Their waits end
// where no rank moves, and a disk may take longer: it shows them progress that time alone makes.
class WritingScope {
  public:
    // Rank 0's; outlives it. Afterwards the cluster has no progress to show.
    explicit WritingScope(cluster::Cluster& cluster);
    ~WritingScope();
    WritingScope(const WritingScope&) = delete;
    WritingScope& operator=(const WritingScope&) = delete;

  private:
    cluster::Cluster& cluster_;
};

// Writes the adapter where one was trained, else the model, into words.folder; returns its path. A
// disk that is full for a moment loses neither: the result is tried again, and where it lacks room,
// all checkpoints but the newest are removed. alone: no checkpoint has what was learnt, so the
// attempts go on until the result is there, or a signal comes. Errors: the last attempt's.
Result<std::string> WriteResult(const model_files::ModelSource& trained,
                                const TrainerOptions& trainer, const TrainExportOptions& words,
                                bool alone);

}  // namespace weft::train
