// Writes the result of a job, and retries until it is on disk.
#pragma once

#include <string>

#include "base/result.h"
#include "cluster/cluster.h"
#include "hw/cpu.h"
#include "model_files/model_file.h"
#include "train/export.h"
#include "train/trainer.h"

namespace weft::train {

// While rank 0 writes the result, the other ranks wait for rank 0's next request. The wait of those
// ranks fails if no rank makes progress for some time, but a write to a slow disk may take longer.
// So a WritingScope reports progress for as long as it exists. Meanwhile the thread may run on all
// cores of the rank, as threads that it creates will; a device may have pinned it to one.
class WritingScope {
  public:
    // cluster: rank 0's cluster; must outlive this object. The destructor resets the cluster's
    // progress function.
    explicit WritingScope(cluster::Cluster& cluster);
    ~WritingScope();
    WritingScope(const WritingScope&) = delete;
    WritingScope& operator=(const WritingScope&) = delete;

  private:
    cluster::Cluster& cluster_;
    PinnedThread pinned_;
};

// Checks that the result does not replace the model or adapter from which the job starts: a job
// that resumes reads it again. Errors: kUsage.
Status CheckInputStays(const TrainerOptions& trainer, const TrainExportOptions& words);

// The plan of the adapter that `trainer` trains, for WriteResult. Errors: those of
// model_files::PlanAdapter.
Result<ResultPlan> PlanAdapterResult(const Trainer& trainer);

// Writes the adapter if one was trained, otherwise the model, into words.folder; returns the path.
// Retries after a failure. If the disk has too little space for the result, removes all checkpoints
// but the newest. alone: no checkpoint has the trained weights, so WriteResult tries until the
// result is written or a signal arrives. Errors: the error of the last attempt.
Result<std::string> WriteResult(const model_files::ModelSource& trained, const ResultPlan& plan,
                                const TrainExportOptions& words, bool alone);

}  // namespace weft::train
