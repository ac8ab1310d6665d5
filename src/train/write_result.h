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

// Writes the adapter where one was trained, else the model, into words.folder. A disk that is full
// for a moment loses neither: old checkpoints go for it, all but the newest, and it is tried again;
// where there is no checkpoint, until a signal comes. The path of what was written.
// Errors: those of the last attempt, with where what was learnt is.
Result<std::string> WriteResult(const model_files::ModelSource& trained,
                                const TrainerOptions& trainer, const ExportWords& words);

}  // namespace weft::train
