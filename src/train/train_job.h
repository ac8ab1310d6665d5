// TrainJob: all settings that a rank needs for training. The command line sets them, and rank 0
// sends the TrainJob to the other ranks as JSON (base/field_codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/folder_limit.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "train/best_step.h"
#include "train/data/open.h"
#include "train/sample.h"
#include "train/saver.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace weft::train {

inline constexpr char kTrainJobKind[] = "train";

struct TrainJob {
    TrainerOptions trainer;  // trainer.sequence equals data.sequence (sequence length)
    DatasetOptions data;
    Schedule schedule;  // total_steps 0: replaced by the number of updates of the run
    int64_t steps = 0;  // number of updates; 0: depends on epochs
    int64_t epochs = 1;
    bool drop_last = false;  // skip the incomplete last batch of the epochs
    // Number of updates between evaluations on the test part; 0: an evaluation after each epoch.
    // There is always one at the end. Without a test part there are no evaluations.
    int64_t eval_every = 0;
    StopRule early_stop;
    SampleOptions sample;
    SaveOptions save;
    // elastic: ranks may join and leave (elastic.h). global_batch: sequences per update over all
    // ranks, set for elastic jobs; 0: micro_batch * accumulation * replicas.
    bool elastic = false;
    int64_t global_batch = 0;
};

// Checks that numbers are consistent and paths are UTF-8. Errors: kUsage.
Status CheckTrainJob(const TrainJob& job);

// Makes paths absolute and canonical, because ranks may have other working folders. Errors: kIo.
Status MakeAbsolute(TrainJob& job);

// Copies the sequence length, the seeds and the loss of the data to the trainer.
void TakeDataWords(TrainJob& job);

std::string TrainJobToJson(const TrainJob& job);
// limit: the folders in which the files that the job names must be. Errors: kCorrupt, with the
// field, its value and the valid range in the message; kDenied (limit), kNotFound (with a limit:
// the model is not in the cache); those of CheckTrainJob.
Result<TrainJob> TrainJobFromJson(const std::string& text, const FolderLimit& limit = {});
// The current job of `cluster`, within this host's folders.
Result<TrainJob> TrainJobOf(const cluster::Cluster& cluster);

}  // namespace weft::train
